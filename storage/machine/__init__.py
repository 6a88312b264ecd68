"""What Trellis asks of the machine: its folder, whole files, locks that end with their process, and the caller's terminal."""
