"""The tests of rotation and of the drop-ins again, with CPU tensors on the path that other devices take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from phasor.torch import _device
from torch_dropins_test import (  # noqa: F401
    test_hf_forms_of_other_files,
    test_hf_module,
    test_hf_module_grows_and_falls_back_with_dynamic_scaling,
    test_hf_module_has_frequencies_and_scaling_to_read,
    test_hf_module_is_exact_at_long_positions,
    test_hf_module_reads_three_rows_of_positions,
    test_hf_module_switches_lists_with_longrope,
    test_hf_rotation,
    test_hf_tables_by_position_ids_as_in_older_versions,
    test_llama_refuses_another_table,
)
from torch_flash_attn_test import (  # noqa: F401
    table,
    test_a_result_written_in_place_has_the_gradient_itself,
    test_cos_and_sin_get_their_gradient_in_place,
    test_in_place_inside_torch_compile,
    test_in_place_with_gradients,
    test_module_is_exact_and_keeps_no_state,
    test_module_of_xpos,
    test_module_rotates_packed_sequences,
    test_module_rotates_qkv_and_kv,
    test_module_trains_and_follows_the_dtype,
    test_packed_forms_in_place,
)
from torch_func_test import test_rotate, test_rotate_by  # noqa: F401
from torch_ops_test import (  # noqa: F401
    test_given_cos_and_sin_get_their_gradients,
    test_inverse_undoes_and_the_op_equals_the_direct_call,
    test_narrow_types_round_once,
    test_positions_of_every_shape,
    test_queries_and_keys_in_one_call,
    test_rotation_is_differentiable_twice,
    test_views_with_any_strides,
)
from torch_patch_test import (  # noqa: F401
    test_gradients_and_generation_agree,
    test_narrow_models_keep_their_type,
    test_the_position_of_a_token_is_what_counts,
)
from torch_rotary_embedding_test import *  # noqa: F403


@pytest.fixture(autouse=True)
def _path_of_other_devices() -> Iterator[None]:
    with _device.forced():
        yield
