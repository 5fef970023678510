"""
Inside one block: what computing and communication of a forward and a backward chunk do beside each other.

Data flows one way: chunk, replay | bound, orders | refuting, search, reading, study, drawing, printing.
"""
