"""What names of kernels tell, and that advice about tensor cores needs a name that surely says 32-bit floats."""

from __future__ import annotations

from pathlib import Path

import pytest

from sysperf.engine.analyze import Result, analyze
from sysperf.trace.kernels import is_matmul, is_plain_float

from .labelled import rules
from .synthetic import Machine, steps, written

PLAIN = (
    "ampere_sgemm_128x64_tn",
    "cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(cutlass_80_simt_sgemm_128x128_8x4_nn_align1::Params)",
    "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int, int, float const*, int, float*)",
    "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>(cublasGemmSmallNParams)",
    "Cijk_Ailk_Bljk_SB_MT128x64x16_SN_K1",
)
NOT_PLAIN = (
    "sm90_xmma_gemm_e4m3f32_e4m3f32_f32_tn_n_tilesize128x128x128_warpgroupsize1x1x1_algo2_execute_segment_k_off_kernel__5x_cublas",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u>(float*, int*)",
    "sm80_xmma_gemm_i8i8_i8i32_f32_tn_n_tilesize64x64x64",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>, cutlass::float_e4m3_t>>",
    "nvfp4_gemm_sm100",
    "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, float, false, 7>",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 2, 2, false, false, cublasGemvParams>",
    "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, c10::Half, int>(c10::Half const*)",
    "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, false, 0, 0, int, float, float>",
    "maxwell_fp16_sgemm_fp16_128x64_nn",
    "ampere_dgemm_64x64_tn",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_tensor16x8x8",
    "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN",
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
)
UNTOLD = ("fused_conv_relu_triton", "void cutlass::device_kernel<MyGemm>", "volta_gcgemm_32x32_nt")


@pytest.mark.parametrize(
    ("name", "plain"),
    [*((name, True) for name in PLAIN), *((name, False) for name in NOT_PLAIN), *((name, None) for name in UNTOLD)],
)
def test_names_that_say_32_bit_floats_without_tensor_cores(name: str, plain: bool | None) -> None:
    """A name that says neither that nor another type is unknown."""
    assert is_matmul(name.lower())
    assert is_plain_float(name.lower()) is plain


def advised(folder: Path, *names: str) -> Result:
    """The analysis of a device that spends its time in such kernels, in equal parts."""

    def step(machine: Machine) -> None:
        for number in range(40):
            machine.kernel(200, names[number % len(names)])
        machine.synchronize()

    return analyze([written(folder, steps(Machine(capability=(9, 0)), 6, step).trace())], rules())


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_no_advice_where_tensor_cores_are_used_or_cannot_help(tmp_path: Path, name: str) -> None:
    result = advised(tmp_path, name)

    assert "precision.tensor-cores-unused" not in [finding.rule for finding in result.analysis.findings] + list(result.analysis.unknown)
    assert not [gain for gain in result.analysis.trace.ranks[0].replay.predictions if gain.fix == "tensor-cores"]


def test_names_that_do_not_tell_leave_it_unknown(tmp_path: Path) -> None:
    """Also where they could decide it: a quarter of the time is surely plain, and half of it is anything."""
    assert "precision.tensor-cores-unused" in advised(tmp_path, *UNTOLD).analysis.unknown
    assert "precision.tensor-cores-unused" in advised(tmp_path, PLAIN[0], UNTOLD[0], UNTOLD[1], NOT_PLAIN[0]).analysis.unknown


def test_only_plain_kernels_become_faster(tmp_path: Path) -> None:
    """Half of the time is in them: 1.5 times as fast gains 17 %, 4 times as fast 37 %."""
    result = advised(tmp_path, PLAIN[0], NOT_PLAIN[0])
    (gain,) = [finding.gain for finding in result.analysis.findings if finding.rule == "precision.tensor-cores-unused"]

    assert gain is not None
    assert gain.low == pytest.approx(17, abs=1)
    assert gain.high == pytest.approx(37, abs=1)
