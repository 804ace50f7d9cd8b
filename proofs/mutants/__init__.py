"""Mutation check of the shipped formulas: change one thing at a time and see that a proof or a test notices."""
