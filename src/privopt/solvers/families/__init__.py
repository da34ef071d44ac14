"""What several algorithms have in common: one file for each family, none of it a solver."""
