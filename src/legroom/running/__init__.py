"""`legroom run`: an unmodified script in a process of its own, with its plan, guarded, and resumed where it is killed."""
