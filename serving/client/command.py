"""Not yet."""


def define_flags(f):
    pass


def run(f, a):
    pass
