"""The commands `report` and `plot`: a run as one page of HTML, or drawn on the terminal."""
