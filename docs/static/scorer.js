// Pages on the design, and on names: after those on how to do something.
const BACKGROUND =
  /^(api|architecture|coming-from|differences|elsewhere|kernel-tour|performance|side-by-side|stability)/;

// Scores of the search. Sphinx inserts this file before its own script, so Scorer must be a var.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: (result) => {
    const [docname, title, anchor, , score, , kind] = result;
    // a section with this title comes before a name of the reference
    if (kind === "title") return 2 * score;
    if (kind === "text") {
      if (docname === "recipes") return score + 1;
      return BACKGROUND.test(docname) ? score - 1 : score;
    }
    if (kind !== "index") return score;
    if (anchor) {
      // Sphinx shows the page's title alone, and would list the section's own title once more
      const { alltitles, docnames } = Search._index;
      const section = Object.entries(alltitles).find(([, places]) =>
        places.some(([file, id]) => docnames[file] === docname && `#${id}` === anchor),
      );
      if (section) result[1] = `${title} > ${section[0]}`;
    }
    // a guide comes before the callback of its name: checkpoints before Checkpoint
    return docname.startsWith("callbacks/") ? score : score + 1;
  },
};
