"""What encodings cost and look like: benchmark, cost tables, pictures, their pages in docs/."""
