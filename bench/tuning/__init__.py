"""What `bolide tune` makes of the usual hand tuning of a small Flask API."""
