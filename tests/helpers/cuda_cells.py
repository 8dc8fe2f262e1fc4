"""The shipped cells for the tests that compile or interpret CUDA kernels, some 10 s of a core for
each: those whose kernels are like another's, or whose state is large, are slow tests."""

from __future__ import annotations

import pytest

import rnnspec

# variants of a cell that is among the fast ones; matrices for a state, or many values; neurons
# beside lif and alif
_NAMES = (
    "lstm_nig lstm_nfg lstm_nog lstm_niaf lstm_noaf lstm_np lstm_fgr lstm_cifg_input lstm_cifg_peephole lstm_tf_full"
    " lstm_tf_peephole lstm_tf_projected lstm_two_biases gru_other_polarity gru_reset_before_other_polarity mgu1 mgu2"
    " mgu3 mut1 mut1_raw mut2 cfc_no_gate cfc_pure slstm_floored ln_lstm_tfa qrnn_f dend_plrnn_clipped nas_additive"
    " rhn_uncoupled fastgrnn_lowrank multiplicative_lstm_paper focused_lstm lightweight_lstm augmented_lstm ea_lstm"
    " ln_lstm_basic ln_rnn sru_v1 mingru_signed mingru_rotation gated_lipschitz_rnn comfi_fastgrnn sligru"
    " deltanet gated_deltanet fast_weight_programmer gla hgrn hgrn2 linear_attention retention rwkv4 rwkv6 rwkv7"
    " mass_lstm ltc cerebral_lstm es2n orthogonal_rnn rits s4d s5"
    " adex izhikevich lif_alpha lif_current lif_synaptic nonlinear_lif plif spiking_lstm"
    " ode_rnn gru_ode ode_lstm cfc_mixed lif_conductance"
)
SLOW = frozenset(_NAMES.split())
CELLS = [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in rnnspec.spec_names()]
