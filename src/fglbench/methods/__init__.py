"""Methods: what is federated and how, one file each."""
