"""The study of the MoE FP8 quantisers: what widening their spaces did, and what would have helped.

torchao's pull request 3952 widened the autotune spaces of these kernels, 4024 took it back. Each
module here answers one question from the recorded landscapes, tidy table in, tidy table out:
`same_launch` (E1, noise between names of one launch), `sharing` (E2 and E3, regret over experts
and groups, by key), `tunings` (E4, E5 and E9, repeated tunings, naive and guarded, and their cold
seconds), `fences` (E6), `held_out` (E7, one family's config on another's shapes), `layouts` (E8),
`speedups` (the tables of the pull request and of three references), `traffic` (what limits the
jagged kernels), `claims` (published beside measured). `drawings` makes the figures.

Whatever was recorded is used: a kernel or shape that is recorded later appears by itself.
"""
