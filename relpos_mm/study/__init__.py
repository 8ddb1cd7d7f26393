"""The factorial study: variants x tasks x seeds, run to the end and told with its evidence."""
