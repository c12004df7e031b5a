"""Observes the world for a plan and carries out what the plan asks for."""
