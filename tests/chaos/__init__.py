"""The chaos suite: real clusters, killed, stopped, cut off and starved, and an independent witness that judges.

Each run prints its seed (SUPERVISION_CHAOS_SEED repeats it) and fails when the faults it meant to inject did not
happen. SUPERVISION_CHAOS=long runs several times as long.
"""
