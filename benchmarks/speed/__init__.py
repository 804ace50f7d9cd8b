"""How fast dmodels is beside named peers that solve the same problems in the same run."""
