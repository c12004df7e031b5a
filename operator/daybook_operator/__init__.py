"""The Kubernetes operator: watches, plans, performs.

Every decision is made by a pure function of what was observed (`plan`); everything that touches the world is an effect
from a fixed list, carried out in one place (`reconcile.performer`), so that a crash between any two of them can be
tested and the next reconcile starts from what is true then.
"""
