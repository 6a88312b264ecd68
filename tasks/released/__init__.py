"""What a release says about its counts: estimates, intervals and answers."""
