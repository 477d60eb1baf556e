"""`python -m legroom`."""

from legroom.cli import main

main()
