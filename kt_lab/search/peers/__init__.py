"""The real algorithms of other tuners as searchers of kt_lab; each needs its own package.

Their packages are the extra `peers`. A peer is made by name like any other searcher
(`make_searcher("helion_lfbo_tree", space, seed=0)`), but is not listed among `searchers()`:
whether it can run depends on what is installed.
"""

_HELION = "kt_lab.search.peers.helion"
_KERNEL_TUNER = "kt_lab.search.peers.kernel_tuner"

PEERS = {
    "helion_lfbo_tree": f"{_HELION}:LFBOTree",
    "helion_lfbo_pattern": f"{_HELION}:LFBOPattern",
    "helion_pattern": f"{_HELION}:Pattern",
    "helion_de": f"{_HELION}:DifferentialEvolution",
    "helion_de_surrogate": f"{_HELION}:DESurrogate",
    "helion_random": f"{_HELION}:Random",
    "kt_adaptive_tabu_greywolf": f"{_KERNEL_TUNER}:GreyWolf",
    "kt_hybrid_vndx": f"{_KERNEL_TUNER}:HybridVNDX",
    "kt_genetic": f"{_KERNEL_TUNER}:Genetic",
    "kt_dual_annealing": f"{_KERNEL_TUNER}:DualAnnealing",
    "kt_bayes_opt": f"{_KERNEL_TUNER}:BayesOpt",
    "kt_greedy_ils": f"{_KERNEL_TUNER}:GreedyILS",
}
