"""What Trellis needs of the machine: a folder, files, locks, the clock, and the caller's terminal."""
