"""The door of every public function: what is accepted, and what the refusals say."""

from __future__ import annotations

import numpy as np
import pytest

from concept_audit.arrays import (
    as_binary_concepts,
    as_labels,
    as_matrix,
    as_vectors,
    check_same_rows,
    check_same_shape,
    to_numpy,
)

VALUES = np.array([[0.25, 0.5], [0.75, 1.0], [0.0, 0.125]])


def _forms():
    torch = pytest.importorskip("torch")
    read_only = VALUES.copy()
    read_only.setflags(write=False)
    return {
        "list": VALUES.tolist(),
        "float16": VALUES.astype(np.float16),  # all values are exact in half precision
        "float32": VALUES.astype(np.float32),
        "fortran": np.asfortranarray(VALUES),
        "strided": np.repeat(VALUES, 2, axis=0)[::2],
        "read-only": read_only,
        "tensor": torch.tensor(VALUES),
        "tensor with gradient": torch.tensor(VALUES, requires_grad=True),
        "bfloat16": torch.tensor(VALUES).bfloat16(),
    }


def test_accepted_forms_give_equal_contiguous_float64_copies():
    for name, form in _forms().items():
        result = as_matrix("c_hat", form)
        np.testing.assert_array_equal(result, VALUES, err_msg=name)
        assert result.dtype == np.float64
        assert result.flags.c_contiguous
        assert result.flags.writeable


def test_the_callers_array_is_never_changed():
    before = VALUES.copy()
    result = as_matrix("c_hat", VALUES)
    result[:] = -1
    np.testing.assert_array_equal(VALUES, before)


def test_labels_take_bool_float_and_a_single_column():
    expected = np.array([0, 1, 1])
    for form in ([0, 1, 1], [False, True, True], [0.0, 1.0, 1.0], [[0], [1], [1]]):
        result = as_labels("y", form)
        np.testing.assert_array_equal(result, expected)
        assert result.dtype == np.int64


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: as_matrix("c_hat", [0.1, 0.2]), ValueError, r"c_hat\[:, None\]"),
        (lambda: as_matrix("c_hat", np.zeros((3, 0))), ValueError, "at least one column"),
        (lambda: as_matrix("c_hat", np.zeros((2, 2)), min_rows=5), ValueError, "at least 5 rows"),
        (lambda: as_matrix("c_hat", [[np.nan, 1.0]]), ValueError, "got 1 NaN or infinite of 2"),
        (lambda: as_matrix("c_hat", [["a", "b"]]), TypeError, "return_inverse=True"),
        (lambda: as_matrix("c_hat", [[1.0], [1.0, 2.0]]), ValueError, "rectangular"),
        (lambda: as_vectors("c_mix", np.zeros((3, 4))), ValueError, "concept-major"),
        (lambda: as_vectors("c_mix", np.zeros((3, 0, 2))), ValueError, "must not be empty"),
        (lambda: as_labels("y", np.eye(3)), ValueError, r"y\.argmax\(axis=1\)"),
        (lambda: as_labels("y", [0.5, 1.0]), ValueError, "1 of 2 values that are no integers"),
        (lambda: as_labels("y", []), ValueError, "at least 1 rows"),
        (lambda: as_binary_concepts("c", [0, 1]), ValueError, r"c\[:, None\]"),
        (lambda: as_binary_concepts("c", [[0, 2]], binary=True), ValueError, "from 0 to 2"),
    ],
)
def test_refusals_name_the_argument_the_rule_the_value_and_the_remedy(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_unequal_rows_name_each_array_and_point_at_a_transposed_one():
    assert check_same_rows(c_hat=np.zeros((5, 2)), y=np.zeros(5)) == 5
    with pytest.raises(ValueError, match="c looks transposed"):
        check_same_rows(c_hat=np.zeros((5, 2)), c=np.zeros((2, 5)))


def test_unequal_shapes_name_the_axes():
    assert check_same_shape("(n, k)", c_hat=np.zeros((5, 2)), c=np.zeros((5, 2))) == (5, 2)
    with pytest.raises(ValueError, match=r"must agree on \(n, k\): got c_hat \(5, 2\), c \(5, 3\)"):
        check_same_shape("(n, k)", c_hat=np.zeros((5, 2)), c=np.zeros((5, 3)))


def test_numbers_of_any_kind_pass_and_objects_do_not():
    assert to_numpy("x", np.float32(3)).shape == ()
    with pytest.raises(TypeError, match="dtype object"):
        to_numpy("x", np.array([object()]))
