"""What the commands of cli.py do, and what they show."""
