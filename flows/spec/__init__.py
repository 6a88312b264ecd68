"""The release spec: what a person may write, the rules of each key, and a starter to begin with."""
