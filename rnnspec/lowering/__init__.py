"""Graph to Program: phases, stages, buffers, tape; and what all textual backends share."""
