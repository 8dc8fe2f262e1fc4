"""The spec language: YAML text to a Spec, and Spec to Spec."""
