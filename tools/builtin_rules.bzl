"""Stand-ins for the repositories of rules that Bazel's own tools load: the rules are built into Bazel."""

def _builtin_rules(context):
    folder = context.attr.folder
    context.file("WORKSPACE", "")
    context.file(folder + "/BUILD", "")
    names = ["%s = native.%s" % (rule, rule) for rule in context.attr.rules]
    names += ["%s = %s" % (name, name) for name in context.attr.globals]
    context.file(folder + "/defs.bzl", "\n".join(names) + "\n")

builtin_rules = repository_rule(
    implementation = _builtin_rules,
    attrs = {
        "folder": attr.string(mandatory = True),
        "globals": attr.string_list(),
        "rules": attr.string_list(),
    },
    doc = "`@NAME//FOLDER:defs.bzl` with the given native rules, so that nothing has to be downloaded.",
)
