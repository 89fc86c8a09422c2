"""The web server of `mm2mgr serve`: metrics, JSON and pages, made of the newest view and nothing else."""
