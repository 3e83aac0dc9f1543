"""Deep Q-learning over single moves: `max_q_dqn` by the max-reward rule, `dqn` by the sum.

network   Q(s, s') as a small network of torch, for `kt_lab.search.max_reward`
replay    its learner, whose batches hold more of the best episodes
searcher  the players, and their options
policy    what was learned, as a file of weights and facts
"""
