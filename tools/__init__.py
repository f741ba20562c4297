"""What makes a release, and holds the code to its rules; in no wheel."""
