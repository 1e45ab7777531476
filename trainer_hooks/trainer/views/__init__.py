"""What Lightning's users look for on a trainer, made when it is asked for; nothing is kept here."""
