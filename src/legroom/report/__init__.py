"""What Legroom found, as data for programs and as text for people."""
