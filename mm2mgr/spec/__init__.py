"""What people declare: YAML files in, a validated `Spec` with places out."""
