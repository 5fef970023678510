"""
Checks evidence again, with whole and rational numbers alone: no solver, and none of the code that found the proof.

``python -m verifier.check DIR`` reads what ``verifier prove --evidence DIR`` wrote. It builds each statement anew from the
words in the evidence, works out by itself which conditions it comes to, and accepts only if every one of them is covered.
``theorems`` says what is left to trust.
"""
