"""What every part stands on: clock, deadlines, retries, periodic work, batches, fair queues."""
