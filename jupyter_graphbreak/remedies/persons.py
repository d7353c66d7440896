def person_sentence(b): return "decide "+b.gb_type
def person_for_frame(s): return "decide "+s.reason
