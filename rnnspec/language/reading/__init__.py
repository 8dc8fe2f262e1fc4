"""What a file says, key by key."""
