"""How far it goes: a model of many machines, fed with what one update was measured to take on this one."""
