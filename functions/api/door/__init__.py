"""The door: the HTTP code that every surface needs. Keys, limits, bodies, errors, and both ways of answering on
Lambda.
"""
