"""Speed measurements, and the baselines that they are measured against."""
