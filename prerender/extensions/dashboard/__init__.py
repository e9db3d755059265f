"""The dashboard with its API: lists, figures, histories, screenshots and comparisons of snapshots."""
