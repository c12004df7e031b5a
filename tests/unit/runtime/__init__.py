"""The runtime package: what every process stands on."""
