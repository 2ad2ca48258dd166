"""Other systems, written or installed only to be measured beside this one."""
