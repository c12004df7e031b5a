"""The images, built and run as a cluster would run them."""
