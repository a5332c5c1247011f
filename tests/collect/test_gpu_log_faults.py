"""Sentences of GPU drivers that are no Xid: the forms are those of the drivers' sources.

NVIDIA's were gone through whole: each message that 555.58.02 prints at the level of errors (kernel-open, src/nvidia, src/nvidia-modeset).
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sysperf.collect.gpu import log_faults, unknown_lines
from sysperf.collect.gpu.kernel_log import read_log
from sysperf.collect.gpu.log_faults import Fault
from sysperf.collect.gpu.nvidia_sentences import NVIDIA
from sysperf.collect.gpu.other_sentences import NEURON, OTHERS, TEGRA
from sysperf.evaluate.rule_files import read_file

AT = "2026-11-20T12:00:00,000001+00:00 "


def read(*lines: str) -> list[Fault]:
    return list(read_log("".join(f"{AT}{line}\n" for line in lines)).faults or ())


SENTENCES = msgspec.toml.decode((Path(__file__).parents[1] / "machines" / "gpu_sentences.toml").read_bytes())


@pytest.mark.parametrize("source", SENTENCES)
def test_what_other_makers_drivers_print_is_known_by_their_sources(source: str) -> None:
    found = {line: [fault.kind for fault in read(f"host kernel: {line}")] for lines in SENTENCES[source].values() for line in lines}

    assert found == {line: [] if kind == "sound" else [kind] for kind, lines in SENTENCES[source].items() for line in lines}


NEW = "amdgpu 0000:03:00.0: amdgpu: failed to frobnicate queue 0x1a, ret -22"


def unlisted(*lines: str, log: tuple[str, ...] = (), errors: bool = True) -> list[tuple[str, int]]:
    """What is said of lines that no kind has, all of the level of errors unless the tool did not tell it."""
    given = "".join(f"{AT}{line}\n" for line in lines)
    faults = read_log("".join(f"{AT}{line}\n" for line in log) + given, errors=given if errors else None).faults or ()
    return [(fault.text, fault.count) for fault in faults if fault.kind == "unknown"]


@pytest.mark.parametrize(
    "line",
    [
        NEW,
        "[drm:amdgpu_frobnicate [amdgpu]] *ERROR* frobnication failed",
        "amdgpu: frobnication failed",
        "kfd kfd: amdgpu: frobnication failed",
        "xe 0000:dc:00.0: [drm] *ERROR* Tile0: GT0: frobnication 0x0fb failed",
        "i915 0000:fb:00.0: [drm] *ERROR* GT0: frobnication failed",
        "habanalabs hl0: frobnication failed",
        "[drm:amdgpu_frobnicate.cold] *ERROR* frobnication failed",
    ],
)
def test_an_error_that_no_kind_has_is_quoted(line: str) -> None:
    ((text, count),) = unlisted(line)

    assert text.endswith(line.rpartition("frobni")[2])
    assert count == 1


def test_each_kind_of_unknown_error_is_quoted_once_and_all_are_counted() -> None:
    others = [f"amdgpu 0000:03:00.0: amdgpu: {word} failed" for word in ("alpha", "beta", "gamma")]

    ((text, count),) = unlisted(NEW, NEW.replace("0x1a", "0x2b"), *others)

    assert (text.count("failed"), "gamma" in text, count) == (3, False, 5)


def test_an_unknown_error_is_not_said_beside_what_is_known_of_that_gpu() -> None:
    hung = "amdgpu 0000:{}:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3"

    assert unlisted(NEW, log=(hung.format("03"),)) == []
    assert unlisted(NEW, log=("amdgpu: failed to add hardware queue to MES",)) == [], "which GPU it is is not told"
    assert unlisted(NEW, log=("NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.",)) == []
    assert len(unlisted(NEW, log=(hung.format("83"),))) == 1, "another GPU"
    assert unlisted("amdgpu: frobnication failed", log=(hung.format("83"),)) == [], "it may be that one's"


@pytest.mark.parametrize(
    "beside",
    [
        "amdgpu 0000:83:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3",
        "nvidia_drm: unknown parameter 'fbdev' ignored",
        "amdgpu: unknown parameter 'gtt_size' ignored",
    ],
)
def test_an_unknown_error_of_nvidias_is_said_beside_what_is_not_of_its_gpus(beside: str) -> None:
    """A hang of the Radeon beside it, or a parameter that nobody knows, explains no failure of NVIDIA's driver."""
    assert "unknown" in [fault.kind for fault in read("host kernel: NVRM: GPU0 kfspFrob: Failed to frobulate", f"host kernel: {beside}")]


def test_an_unknown_error_of_amds_is_said_beside_a_fault_of_nvidias() -> None:
    unnamed = "[drm:amdgpu_frobnicate.cold] *ERROR* frobnication failed"
    start = "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2168)"

    assert len(unlisted(unnamed, log=(start,))) == 1
    assert len(unlisted(NEW, log=("NVRM: NVIDIA: the probe routine failed; None of the NVIDIA devices were initialized.",))) == 1


def test_a_log_of_more_kinds_than_anyone_reads_is_counted_and_quoted_in_short() -> None:
    words = [f"{first}{second}{third}" for first in "ghijklmn" for second in "ghijklmn" for third in "ghijklmn"]
    lines = [f"amdgpu 0000:03:00.0: amdgpu: \x1b[31m{word} failed" for word in words]

    ((text, count),) = unlisted(*lines)

    assert (count, text.count("failed")) == (len(lines), 3)
    assert "\x1b" not in text
    assert len(unlisted(*(line.replace("03:00", f"{number:02x}:00") for number, line in enumerate(lines[:256])))) == 256


def test_without_the_level_a_line_must_call_itself_an_error() -> None:
    assert unlisted(NEW, errors=False) == []
    assert len(unlisted("[drm:amdgpu_frobnicate [amdgpu]] *ERROR* frobnication failed", errors=False)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "amdgpu 0000:12:00.0: [drm] *ERROR* lttpr_caps phy_repeater_cnt is 0x0, forcing it to 0x80.",
        "amdgpu 0000:12:00.0: [drm] *ERROR* LTTPR count is nonzero but invalid lane count reported. Assuming no LTTPR present.",
        "[drm:retrieve_link_cap [amdgpu]] *ERROR* retrieve_link_cap: Read receiver caps dpcd data failed.",
        "[drm:smu_v11_0_i2c_xfer.cold [amdgpu]] *ERROR* Received I2C_NAK_7B_ADDR_NOACK !!!",
        "[drm:create_links [amdgpu]] *ERROR* DC: failed to create link!",
        "amdgpu 0000:03:00.0: [drm] *ERROR* [CRTC:72:crtc-0] flip_done timed out",
        "amdgpu 0000:03:00.0: [drm] *ERROR* dc_dmub_srv_log_diagnostic_data: DMCUB error - collecting diagnostic data",
        "amdgpu 0000:03:00.0: amdgpu: SECUREDISPLAY: query securedisplay TA failed. ret 0x0",
        "amdgpu: Overdrive is enabled, please disable it before reporting any bugs unrelated to overdrive.",
        "[drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Failed to initialize parser -125!",
        "[drm:amdgpu_job_submit [amdgpu]] *ERROR* Trying to push to a killed entity",
        "amdgpu 0000:03:00.0: amdgpu: FRU: Failed to get size field",
        "amdgpu 0000:03:00.0: amdgpu: XGMI: Failed to create device file xgmi_device_id",
        "amdgpu 0000:03:00.0: amdgpu: Failed to disable gfxoff!",
        "i915 0000:00:02.0: [drm] *ERROR* Zero GuC log crash dump size!",
        "i915 0000:00:02.0: [drm] *ERROR* Fault errors on pipe B: 0x00000080",
        "i915 0000:00:02.0: [drm] *ERROR* AUX A/DDI A/PHY A: did not complete or timeout within 10ms (status 0xad4003ff)",
        "i915 0000:00:02.0: [drm] *ERROR* Atomic update failure on pipe A (start=18 end=19) time 120 us, min 1073, max 1079",
        "i915 0000:00:02.0: [drm] *ERROR* DMC firmware has wrong CSS header length (1097158924 bytes)",
        "i915 0000:00:02.0: [drm] *ERROR* TC cold unblock failed",
        "i915 0000:00:02.0: [drm] *ERROR* Unclaimed access detected prior to suspending",
        "i915 0000:00:02.0: [drm] *ERROR* Timeout waiting for DDI BUF A to get active",
        "i915 0000:00:02.0: [drm] *ERROR* Failed to probe lspcon",
        "i915 0000:00:02.0: [drm] *ERROR* Failed to disable SAGV (-110)",
        "i915 0000:00:02.0: [drm] *ERROR* DSI link not ready",
        "i915 0000:00:02.0: [drm] *ERROR* Timed out waiting for ACT sent when disabling",
        "i915 0000:00:02.0: [drm] *ERROR* DBuf power enable timeout!",
        "i915 0000:00:02.0: [drm] *ERROR* PORT PLL B not locked",
        "[drm:intel_power_well_enable [i915]] *ERROR* power well 2 timeout",
        "xe 0000:00:02.0: [drm] *ERROR* Sending link address failed with -5",
        "[drm:generic_reg_wait [amdgpu]] *ERROR* REG_WAIT timeout 1us * 100000 tries - mpc2_assert_idle_mpcc line:479",
        "[drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Failed to process the buffer list -512!",
        "amdgpu: [powerplay] VI should always have 2 performance levels",
        "amdgpu: [powerplay] can't get the mac of 5",
        "NVRM gpumgrGetSomeGpu: Failed to retrieve pGpu - Too early call!.",
        "xe 0000:03:00.0: [drm] *ERROR* GT1: GSC init failed with -110",
        "xe 0000:03:00.0: [drm] *ERROR* PCODE Mailbox failed: 1 Illegal Command",
        "amdxdna 0000:c7:00.1: [drm] *ERROR* amdxdna_drm_open: SVA bind device failed, ret -95",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  610.43.03  Release Build",
        "NVRM: objClInitPcieChipset: *** Chipset Setup Function Error!",
        "NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: minRequiredIsoBandwidthKBPS <= clientBwValues",
        "nvidia-gpu 0000:01:00.3: i2c timeout error e0000000",
    ],
)
def test_errors_of_sound_gpus_of_screens_and_of_other_devices_are_not_quoted(line: str) -> None:
    assert unlisted(line) == []


@pytest.mark.parametrize(
    "second", ["                       failed to send message 136 ret is 0 ", f"{AT} failed to send message 136 ret is 0 "]
)
def test_what_amds_driver_says_in_the_next_line_belongs_to_it(second: str) -> None:
    """Numbers other than 0 are answers: the power manager does not know the message."""
    log = f"{AT}amdgpu: [powerplay] \n{second}\n"

    assert [(fault.kind, fault.text) for fault in read_log(log).faults or ()] == [
        ("firmware", "amdgpu: [powerplay] failed to send message 136 ret is 0")
    ]
    assert read_log(log.replace("ret is 0", "ret is 254")).faults == ()
    assert read_log(f"{AT}amdgpu: [powerplay] \n{AT}amdgpu: [powerplay] dpm initialized\n").faults == ()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("NVRM: GPU 0000:01:00.0: GPU does not have the necessary power cables connected.", "power-cable"),
        ("NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1db1) installed in this system is not supported by open", "closed-module"),
        ("NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2d04) installed in this system is not supported by the NVIDIA 550.163.01 driver release.", "unsupported"),
        ("NVRM: The NVIDIA Tesla K80 GPU installed in this system is supported through the NVIDIA 470.xx Legacy drivers.", "unsupported"),
        ("NVRM: Can't find an IRQ for your NVIDIA card!", "interrupt"),
        ("nvidia: version magic '6.8.0-48-generic SMP preempt mod_unload ' should be '6.8.0-49-generic SMP preempt mod_unload '", "module"),
        ("nvidia_uvm: disagrees about version of symbol nvUvmInterfaceRegisterGpu", "module"),
        ("amdgpu 0000:03:00.0: [drm:amdgpu_device_init.cold [amdgpu]] *ERROR* hw_init of IP block <gfx_v9_0> failed -110", "start"),
        ("[drm:amdgpu_device_fw_loading [amdgpu]] *ERROR* resume of IP block <psp> failed -62", "reset-failed"),
        ("[drm:amdgpu_device_init.cold] *ERROR* hw_init of IP block <gfx_v9_0> failed -110", "start"),
        ("[drm:amdgpu_device_init.cold] *ERROR* sw_init of IP block <psp> failed -2", "firmware-file"),
        ("[drm:gfx_v8_0_sw_init.cold] *ERROR* Failed to load gfx firmware!", "firmware-file"),
        ("[drm:psp_hw_start] *ERROR* PSP create ring failed!", "firmware-load"),
        ("xe 0000:03:00.0: [drm] Tile0: GT0: Kernel-submitted job timed out", "hung"),
        ("i915 0000:03:00.0: [drm] Resetting rcs0 for stopped heartbeat on rcs0", "hung"),
        ("NVRM: request_mem_region failed for 16M @ 0xfc000000. This can", "taken"),
        ("NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ k.c:2827", "reset"),
        ("NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from kgspCreateRadix3(pGpu) @ k.c:4502", "room"),
        ("NVRM: GPU0 kgspInitRm_IMPL: Error preparing GSP-RM image", "room"),
        ("NVRM: GPU0 _kgspIsHeartbeatTimedOut: LibOS heartbeat timed out, currentTimeMs 5 heartbeat 1 heartbeatWithOffsetMs 1 diff 4 timeout 3", "firmware"),
        ("NVRM: GPU0 _kgspLogHeartbeatSpecificTimeout: GPU0: GSP ERROR: LibOS Heartbeat Timeout detected.", "firmware"),
        ("NVRM: GPU0 _kgspLogHeartbeatSpecificTimeout: GPU0: GSP ERROR: GSP-RM Heartbeat Timeout detected.", "late"),
        ("NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: Back to back GSP RPC timeout detected! GPU marked for reset @ kernel_gsp.c:2200", "reset"),
        ("NVRM: GPU0 _kgspLogRpcSanityCheckFailure: GPU0 sanity check failed 0xf waiting for RPC response from GSP. Expected function 4097", "lost"),
        ("NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from memdescAlloc(p) @ m.c:1353", "full"),
        ("Cannot map memory with base addr 0x7d523e000000 and size of 0x8700c pages", "pinning"),
        ("[drm:__nv_drm_gem_nvkms_map [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00000a00] Failed to map NvKmsKapiMemory 0x0000000061", "screen"),
        ("NVRM: None of the NVIDIA devices were initialized.", "probe"),
        ("nvidia: probe of 0000:01:00.0 failed with error -1", "probe"),
        ("nvidia 0000:01:00.0: probe with driver nvidia failed with error -1", "probe"),
        ("nvidia 0000:01:00.0: Direct firmware load for nvidia/535.54.03/gsp_ga10x.bin failed with error -2", "firmware-file"),
        ("nvidia 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible", "lost"),
        ("nvidia 0000:01:00.0: can't change power state from D3cold to D0 (config space inaccessible)", "lost"),
        ("NVRM: GPU0 kgspHealthCheck_TU102: ****************************** GSP-CrashCat Report *******************************", "firmware"),
        ("NVRM: GPU0 krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7", "hung"),
        ("nvidia-modeset: ERROR: GPU:0: Failed to query display engine channel state: 0x0000c67e:6:0:0x0000000f", "hung"),
        ("nvidia-modeset: ERROR: GPU:0: Error while waiting for GPU progress: 0x0000c67d:0 2:0:4040:4032", "hung"),
        ("nvidia-uvm: uvm_pmm_gpu.c:3176 devmem_alloc_pagemap[pid:92821] request_free_mem_region() err -34", "hmm"),
        ("nvidia-uvm: uvm_global.c:448 uvm_global_set_fatal_error_impl[pid:812] Encountered a global fatal error: NV_ERR_GPU_IS_LOST", "uvm"),
        ("nvidia 0000:c1:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0012 address=0x2000 flags=0x0000]", "iommu"),
        ("amdgpu 0000:03:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010 address=0x64a7f000 flags=0x0000]", "iommu"),
        ("amdgpu 0000:03:00.0: amdgpu: RAS records:129 exceed threshold:128, GPU will not be initialized. Replace this GPU or increase", "replace"),
        ("amdgpu 0000:03:00.0: amdgpu: {3} socket: 0, die: 1, 2 new uncorrectable hardware errors detected in umc block", "memory"),
        ("amdgpu 0000:03:00.0: amdgpu: ERROR: GPU over temperature range(SW CTF) detected!", "heat"),
        ("amdgpu 0000:03:00.0: amdgpu: ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!", "heat"),
        ("amdgpu 0000:03:00.0: amdgpu: SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000012", "firmware"),
        ("amdgpu 0000:03:00.0: amdgpu: Mode2 reset failed!", "reset-failed"),
        ("amdgpu 0000:03:00.0: [drm] device wedged, but recovered through reset", "hung"),
        ("amdgpu 0000:03:00.0: [drm] device wedged, needs recovery", "wedged"),
        ("amdgpu 0000:03:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE", "hung"),
        ("amdgpu 0000:03:00.0: amdgpu: GPU reset succeeded, trying to resume", "hung"),
        ("amdgpu: qcm fence wait loop timeout expired", "hung"),
        ("amdgpu: The cp might be in an unrecoverable state due to an unsuccessful queues preemption", "hung"),
        ("amdgpu 0000:03:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:3 pasid:32771)", "program"),
        ("amdgpu 0000:03:00.0: probe with driver amdgpu failed with error -22", "probe"),
        ("amdgpu 0000:03:00.0: amdgpu: trn=2 ACK should not assert! wait again !", "start"),
        ("xe 0000:03:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:03:00.0 as wedged.", "wedged"),
        ("xe 0000:03:00.0: [drm] Tile0: GT0: Timedout job: seqno=106926, lrc_seqno=106926, guc_id=6, flags=0x20 in python [2]", "hung"),
        ("xe 0000:03:00.0: [drm] Tile0: GT0: Fault response: Unsuccessful -EINVAL", "program"),
        ("xe 0000:03:00.0: In Survivability Mode", "survival"),
        ("i915 0000:03:00.0: Failed to initialize GPU, declaring it wedged!", "wedged"),
        ("i915 0000:03:00.0: [drm] *ERROR* GT0: GuC initialization failed -ENOEXEC", "firmware-load"),
        ("xe 0000:03:00.0: [drm] *ERROR* Tile0: GT0: load failed: status = 0x40000056, time = 0ms, freq = 1850MHz (req 1850MHz), done = -1", "firmware-load"),
        ("i915 0000:03:00.0: [drm] *ERROR* GT0: Failed to initialise HW following reset (-5)", "reset-failed"),
        ("[drm:__uc_sanitize [i915]] *ERROR* Failed to reset GuC, ret = -110", "reset-failed"),
        ("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=613206, emitted seq=613208", "hung"),
        ("[drm:mes_v11_0_submit_pkt_and_poll_completion.constprop.0 [amdgpu]] *ERROR* MES failed to response msg=2", "hung"),
        ("amdgpu 0000:03:00.0: [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=1, emitted seq=3", "hung"),
        ("i915 0000:03:00.0: [drm] Resetting chip for stopped heartbeat on rcs0", "hung"),
        ("NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned from rmStatus @ k.c:106", "lost"),
        ("NVRM: nvCheckOkFailedNoLog: Check failed: ECC error [NV_ERR_ECC_ERROR] (0x00000073) returned from status @ k.c:12", "memory"),
        ("NVRM: nvAssertOkFailedNoLog: Assertion failed: Nvlink training [NV_ERR_NVLINK_TRAINING_ERROR] (0x00000077) returned from s @ k.c:1", "link"),
        ("NVRM: GPU 0000:01:00.0 is already bound to nouveau.", "taken"),
        ("NVRM: rm_init_adapter(0) failed", "start"),
        ("NVRM: rm_init_adapter for device bearing minor number 0 failed", "start"),
        ("NVRM: GPU0 nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x", "full"),
        ("[drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Not enough memory for command submission!", "full"),
        ("amdgpu: SVM mapping failed, exceeds resident system memory limit", "full"),
        ("amdgpu 0000:0b:00.0: amdgpu: failed to init sos firmware", "firmware-file"),
        ("[drm:psp_sw_init [amdgpu]] *ERROR* Failed to load psp firmware!", "firmware-file"),
        ("[drm:amdgpu_device_delayed_init_work_handler [amdgpu]] *ERROR* ib ring test failed (-110).", "start"),
        ("amdgpu 0000:09:00.0: amdgpu: failed to write reg 28b4 wait reg 28c6", "hung"),
        ("amdgpu 0000:09:00.0: amdgpu: Ring sdma0 reset failure", "hung"),
        ("xe 0000:03:00.0: [drm] *ERROR* Tile0: GT0: Unsupported GuC v70.20.0! v70.29.2 or newer is required", "firmware-file"),
        ("xe 0000:03:00.0: [drm] *ERROR* Tile0: GT0: GuC reset timed out, GDRST=0x8", "reset-failed"),
        ("i915 0000:03:00.0: [drm] context llama-server[4242]: guilty 1, banned", "hung"),
        ("i915 0000:03:00.0: [drm] *ERROR* Failed to setup region(-22) type=3", "start"),
        ("NVRM: Failed to create a DMA mapping!", "iommu"),
        ("nvidia 0000:00:03.0: swiotlb buffer is full (sz: 524288 bytes), total 262144 (slots), used 1044 (slots)", "iommu"),
        ("NVRM: kgspExtractVbiosFromRom_TU102: did not find valid ROM signature", "rom"),
        ("NVRM: _threadNodeCheckTimeout: API_GPU_ATTACHED_SANITY_CHECK failed!", "lost"),
        ("NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP", "boot"),
        ("NVRM: API mismatch: the client has the version 570.148.08, but", "mismatch"),
        ("NVRM: API mismatch: the client 'kwin_wayland' (pid 1005)", "mismatch"),
        ("NVRM: GPU0 _issueRpcAndWait: rpcRecvPoll timedout for fn 76!", "firmware"),
        ("nvidia-modeset: ERROR: GPU:0: Idling display engine timed out: 0x0000c57e:0:0:0x00000002", "hung"),
        ("nvidia_peermem: disagrees about version of symbol nvidia_p2p_get_pages", "module"),
        ("nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client", "peer"),
        ("nvidia_peermem: Unknown symbol ib_unregister_peer_memory_client (err 0)", "peer"),
        ("nvidia-nvswitch: probe of 0000:c4:00.0 failed with error -1", "probe"),
        ("NVRM: This is a 64-bit BAR mapped above 4GB by the system", "region"),
        ("NVRM: Fatal Error while attempting to resize PCIe BARs.", "region"),
        ("NVRM: GPU 0000:01:00.0: No interrupts of any type are available. Cannot use this GPU.", "interrupt"),
        ("NVRM: GPU 0000:01:00.0: Tried to get IRQ 16, but another driver", "interrupt"),
        ("NVRM: Going over RM unhandled interrupt threshold for irq 148", "interrupt"),
        ("NVRM: GPU0 _intrServiceStallCommonCheckEnd: Interrupt is stuck. Bailing after 100 iterations.", "interrupt"),
        ("nvidia-modeset: Version mismatch: nvidia.ko(535.183.01) nvidia-modeset.ko(550.54.15)", "module"),
        ("nvidia-nvswitch: Version mismatch, kernel version 535.183.01 user version 535.161.08", "mismatch"),
        ("NVRM: Attempting to remove device 0000:01:00.0 with non-zero usage count!", "removed"),
        ("NVRM: GPU 0000:01:00.0: open() not permitted for excluded GPU", "excluded"),
        ("NVRM: GPU 0000:01:00.0: Device is currently unavailable", "excluded"),
        ("NVRM: GPU0 rpcSetGuestSystemInfo_v15_00: NVRM_RPC: SET_GUEST_SYSTEM_INFO : failed.", "vgpu"),
        ("NVRM: Aborting probe for VF 0000:3b:00.4 since IOMMU is not present on the system.", "vgpu"),
        ("NVRM: GPU memory zone movable auto onlining failed!", "memory-node"),
        ("NVRM: Hotplugged GPU memory NUMA node: 2 not set in current->mems_allowed!", "memory-node"),
        ("NVRM: ignoring the legacy GPU 0000:01:00.0", "unsupported"),
        ("NVRM: Open nvidia.ko is only ready for use on Data Center GPUs.", "closed-module"),
        ("NVRM: GPU0 kgspValidateBuildVersion: gsp_ga10x.bin version mismatch: got version 535.54.03, expected version 535.86.05", "firmware-file"),
        ("NVRM: kgspInitRm_IMPL: need firmware to initialize GSP", "firmware-file"),
        ("NVRM: confComputeConstructEngine_IMPL: CPU does not support confidential compute.", "confidential"),
        ("NVRM: spdmContextInit_IMPL: SPDM: Session establishment failed!", "confidential"),
        ("NVRM: GPU3 kgspHealthCheck_TU102: ********************************* GSP Failure **********************************", "firmware"),
        ("NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).  The GPU likely needs to be reset.", "firmware"),
        ("NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x00000065 for fn 78!", "firmware"),
        ("NVRM: GPU0 _kgspRpcRecvPoll: GSP RM heartbeat timed out", "late"),
        ("NVRM: kgspParseFwsecUcodeFromVbiosImg: failed to parse FWSEC ucode from VBIOS image (VBIOS version 96.00.74.00.01): 0x25", "rom"),
        ("NVRM: heapBlackListPages_IMPL: We have blacklisted maximum number of pages possible. returning error 57", "replace"),
        ("NVRM: page offlining failed. address: 0x5a1f000 pfn: 0x5a1f ret: -16", "memory"),
        ("nvidia-uvm: uvm_gpu.c:2163 uvm_gpu_check_ecc_error_no_rm[pid:4242] ECC error encountered, GPU GPU-12345678", "memory"),
        ("NVRM: GPU0 gpumgrGetP2PCaps: Links failed to train for the given gpu pairs!", "link"),
        ("NVRM: knvlinkSetDegradedMode_IMPL: GPU2 marked Degraded for error on linkId 5", "link"),
        ("nvidia-nvswitch0: Failed to initialize device : -5", "switch"),
        ("nvidia-nvswitch3: Blacklisted nvswitch device", "switch"),
        ("nvidia-nvswitch: unrecoverable error in ISR", "switch"),
        ("NVRM: GPU0 intrServiceStall_IMPL: Failed GPU reg read : 0xffffffff. Check whether GPU is present on the bus", "lost"),
        ("NVRM: GPU 0000:01:00.0: PCI channel for the device is offline", "lost"),
        ("NVRM: GPU0 tmrGetTimeEx_GH100: Consistently Bad TimeLo value ffffffff", "lost"),
        ("NVRM: kbifPollDeviceOnBus_IMPL: Timeout polling GPU back on bus", "lost"),
        ("NVRM: osInitNvMapping: *** Cannot attach gpu", "start"),
        ("NVRM: RmInitAdapter: osInitNvMapping failed, bailing out of RmInitAdapter", "start"),
        ("NVRM: gpuHandleSecFault_GH100: SEC_FAULT lockdown detected. This is fatal. RM will now shut down.", "start"),
        ("NVRM: GPU0 kgspBootstrap_GH100: Timeout waiting for lockdown release. It's also possible that bootrom may have failed.", "boot"),
        ("NVRM: GPU0 kgspWaitForGfwBootOk_TU102: failed to wait for GFW boot complete: 0x55 VBIOS version 90.17.99.00.01", "boot"),
        ("NVRM: GPU0 kgspExecuteBooterLoad_TU102: failed to execute Booter Load: 0x62", "boot"),
        ("NVRM: kfspPollForQueueEmpty_IMPL: Timed out waiting for FSP command queue to be empty.", "boot"),
        ("NVRM: RmInitAdapter: Cannot initialize GSP firmware RM", "boot"),
        ("NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.", "uvm-reboot"),
        ("NVRM: kflcnWaitForHaltRiscv_GA102: Timeout waiting for RISC-V to halt", "boot"),
        ("NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!", "link"),
        ("NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!", "link"),
        ("nvidia-peermem nv_dma_map:263 ERROR nv_dma_map -- error -22 while calling nvidia_p2p_dma_map_pages()", "peer"),
        ("NVRM: GPU0 kbusBindBar2_TU102: timed out waiting for bar2 binding to complete", "hung"),
        ("NVRM: memmgrMemUtilsMemCopy: Timed Out waiting for CE semaphore", "hung"),
        ("nvidia 0000:01:00.0: not ready 65535ms after bus reset; giving up", "lost"),
        ("amdgpu 0000:03:00.0: not ready 65535ms after FLR; giving up", "lost"),
        ("amdgpu 0000:03:00.0: amdgpu: MES(1) failed to respond to msg=INVALIDATE_TLBS", "hung"),
        ("amdgpu 0000:03:00.0: amdgpu: MES ring buffer is full.", "hung"),
        ("amdgpu: HIQ MQD's queue_doorbell_id0 is not 0, Queue preemption time out", "hung"),
        ("amdgpu: cp queue preemption time out.", "hung"),
        ("amdgpu 0000:03:00.0: amdgpu: Msg issuing pre-check failed(0xff) and SMU may be not in the right state!", "firmware"),
        ("amdgpu 0000:03:00.0: amdgpu: SMU: No response msg_reg: 37 resp_reg: 0", "firmware"),
        ("amdgpu 0000:03:00.0: amdgpu: SMU: response:0xFFFFFFFF for index:18 param:0x00000005 message:TransferTableSmu2Dram?", "firmware"),
        ("[drm:psp_hw_start [amdgpu]] *ERROR* PSP create ring failed!", "firmware-load"),
        ("[drm:psp_hw_init [amdgpu]] *ERROR* PSP firmware loading failed", "firmware-load"),
        ("amdgpu 0000:03:00.0: amdgpu: early_init of IP block <sdma_v6_0> failed -19", "start"),
        ("[drm:amdgpu_device_init.cold [amdgpu]] *ERROR* sw_init of IP block <psp> failed -2", "firmware-file"),
        ("amdgpu 0000:03:00.0: [drm:amdgpu_ring_test_helper [amdgpu]] *ERROR* ring mes_kiq_3.1.0 test failed (-110)", "start"),
        ("[drm:amdgpu_ib_ring_tests [amdgpu]] *ERROR* IB test failed on gfx (-110).", "start"),
        ("amdgpu 0000:03:00.0: amdgpu: gpu post error!", "start"),
        ("kfd kfd: amdgpu: Device 1002:744c NOT added due to errors", "start"),
        ("amdgpu 0000:03:00.0: amdgpu: Unable to locate a BIOS ROM", "rom"),
        ("amdgpu 0000:03:00.0: amdgpu: ASIC reset failed with error, -62 for drm dev, 0000:03:00.0", "reset-failed"),
        ("amdgpu 0000:03:00.0: amdgpu: Saved bad pages 130 reaches threshold value 128", "replace"),
        ("amdgpu 0000:03:00.0: amdgpu: RAS poison is consumed, kick off gpu reset flow", "memory"),
        ("[drm:gfx_v11_0_bad_op_irq [amdgpu]] *ERROR* Illegal opcode in command stream", "program"),
        ("amdgpu 0000:03:00.0: amdgpu: XGMI: Set topology failure on device 5, hive 6, ret -22", "link"),
        ('amdgpu 0000:03:00.0: amdgpu: sdma_v6_0: Failed to load firmware "amdgpu/sdma_6_1_1.bin"', "firmware-file"),
        ("[drm:amdgpu_device_ip_early_init [amdgpu]] *ERROR* failed to load gpu_info firmware", "firmware-file"),
        ("xe 0000:03:00.0: [drm] *ERROR* Tile0: GT0: GuC firmware xe/bmg_guc_70.bin: fetch failed -ENOENT", "firmware-file"),
        ("xe 0000:03:00.0: [drm] *ERROR* Tile0: GT0: Timed out wait for G2H, fence 1234, action 4502, done no", "firmware"),
        ("xe 0000:03:00.0: [drm] *ERROR* Tile0: GT0: GuC mmio request 0x4100: no response 0x4100", "firmware"),
        ("xe 0000:03:00.0: [drm] Tile0: GT0: Schedule disable failed to respond, guc_id=4", "hung"),
        ("xe 0000:03:00.0: [drm] *ERROR* [Hardware Error]: Tile0 reported NONFATAL error 0x20000", "memory"),
        ("i915 0000:03:00.0: [drm] *ERROR* GT0: GUC: Engine reset request failed on 0:0 (rcs0) because 0x0, GDRST = 0x00000000", "hung"),
        ("i915 0000:03:00.0: [drm] *ERROR* Device is non-operational; MMIO access returns 0xFFFFFFFF!", "lost"),
        ("i915 0000:03:00.0: Your graphics device 56a0 is not properly supported by i915 in this", "unsupported"),
        ("xe 0000:03:00.0: Your graphics device e20b is not officially supported by xe driver in this kernel version. To force Xe probe", "unsupported"),
    ],
)  # fmt: skip
def test_a_sentence_has_a_kind_and_names_its_gpu(line: str, kind: str | None) -> None:
    found = read(f"host kernel: {line}")

    assert [fault.kind for fault in found] == ([kind] if kind else [])
    assert all(fault.bus_id and fault.bus_id in line for fault in found if ":00.0" in line)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01  Release Build",
        "NVRM: GPU 0000:01:00.0: Failed to enable MSI; falling back to PCIe virtual-wire interrupts.",
        "NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: 0 @ kern_bus.c:346",
        "nvidia 0000:01:00.0: enabling device (0000 -> 0003)",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "amdgpu 0000:03:00.0: [drm:amdgpu_ring_test_helper [amdgpu]] *ERROR* ring kiq_2.1.0 test failed (-110)",
        "amdgpu 0000:03:00.0: Direct firmware load for amdgpu/navi10_mes.bin failed with error -2",
        "amdgpu 0000:03:00.0: amdgpu: socket: 0, die: 1, 0 uncorrectable hardware errors detected in total in umc block",
        "amdgpu 0000:03:00.0: amdgpu: {3} socket: 0, die: 1, 0 new uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:03:00.0: amdgpu: 4 correctable hardware errors detected in total in umc block, no user action is needed.",
        "amdgpu 0000:03:00.0: amdgpu: GPU reset(2) succeeded!",
        "amdgpu 0000:03:00.0: amdgpu: MODE1 reset",
        "amdgpu 0000:03:00.0: amdgpu: GPU mode1 reset",
        "[drm:jpeg_v4_0_hw_init [amdgpu]] JPEG decode initialized successfully.",
        "[drm:ttm_init [ttm]] *ERROR* ring gfx timeout",
        "i915 0000:03:00.0: [drm] GT0: GUC: load failed: status = 0x00000072, time = 1002ms, freq = 100MHz, ret = -110",
        "xe 0000:03:00.0: [drm] Using GuC firmware from xe/bmg_guc_70.bin version 70.44.1",
        "ahci 0000:28:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0035 address=0x7fffff00000 flags=0x0000]",
        "amdgpu 0000:03:00.0: amdgpu: Failed to disallow df cstate",
        'amdgpu 0000:03:00.0: amdgpu: psp v11.0: Failed to load firmware "amdgpu/navi10_ta.bin"',
        "xe 0000:00:02.0: [drm] *ERROR* Tile0: GT1: Timed out wait for G2H, fence 1234, action 4502, done no",
        "amdgpu 0000:03:00.0: amdgpu: psp gfx command LOAD_TA(0x1) failed and response status is (0x7)",
        "xe 0000:03:00.0: [drm] Tile0: GT0: HuC firmware xe/bmg_huc.bin: fetch failed -ENOENT",
        "i915 0000:03:00.0: [drm] GT0: HuC firmware i915/dg2_huc_gsc.bin version 7.10.3",
        "xe 0000:03:00.0: [drm] *ERROR* [Hardware Error]: Tile0 reported CORRECTABLE error 0x20",
        "nvidia 0000:01:00.0: not ready 1023ms after bus reset; waiting",
        "vfio-pci 0000:01:00.0: not ready 65535ms after bus reset; giving up",
        "nvidia_uvm: module uses symbols nvUvmInterfaceDisableAccessCntr from proprietary module nvidia, inheriting taint.",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 234",
        "nvidia-nvswitch0: open (major=235)",
        "nvidia-nvswitch0: using MSI",
        "nvidia-nvswitch: Probing device 0000:05:00.0, Vendor Id = 0x10de, Device Id = 0x1af1, Class = 0x68000",
        "NVRM: Persistence mode is deprecated and will be removed in a future release. Please use nvidia-persistenced instead.",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter succeeded!",
        "NVRM: Failed to load gsp_log_*.bin, no GSP-RM logs will be printed (non-fatal)",
        "NVRM: _kgspProcessRpcEvent: Attempted to process RPC event from GPU0: 0x1003 (GSP_INIT_DONE) during bootup without API lock",
        "NVRM: ccCleanup: CC secret cleanup successful!",
        "NVRM: BAR resize resource not supported.",
        "nvidia-nvlink: Unregistered Nvlink Core, major device number 234",
        "nvme 0000:28:00.0: Unable to change power state from D3cold to D0, device inaccessible",
        "mlx5_core 0000:28:00.0: probe with driver mlx5_core failed with error -5",
    ],
)
def test_what_a_driver_says_of_a_sound_gpu_or_of_another_device_is_no_fault(line: str) -> None:
    assert read(f"kernel: {line}") == []


@pytest.mark.parametrize(
    "line",
    [
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=07:00.0 domain=0x0007 address=0xffffc02000 flags=0x0000]",
        "AMD-Vi: Event logged [IOTLB_INV_TIMEOUT device=07:00.0 address=0x00000000798e0840]",
        "AMD-Vi: Event logged [IOTLB_INV_TIMEOUT] device=07:00.0 address=0x00000000798e0840",
        "AMD-Vi: Event logged [ILLEGAL_DEV_TABLE_ENTRY device=07:00.0 pasid=0x00000 address=0x7a6f0000 flags=0x0000]",
        "DMAR: [DMA Read NO_PASID] Request device [07:00.0] fault addr 0x50340000 [fault reason 0x06] PTE Read access is not set",
        "DMAR: [DMA Write] Request device [0000:07:00.0] fault addr 0xf0000000 [fault reason 05] PTE Write access is not set",
    ],
)
def test_what_the_iommu_refused_counts_of_gpus_only(line: str) -> None:
    """Its line names no driver: of other devices, such as a processor's graphics, it is nothing."""
    log = f"{AT}kernel: {line}\n"

    assert [(fault.kind, fault.bus_id) for fault in read_log(log, {"0000:07:00.0"}).faults or ()] == [("iommu", "0000:07:00.0")]
    assert read_log(log, {"0000:08:00.0"}).faults == ()


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:00:01.1: pciehp: Slot(0): Link Down",
        "pcieport 0000:00:01.1: DPC: containment event, status:0x1f01 source:0x0000",
        "pcieport 0000:00:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
        "pcieport 0000:00:01.1: AER: device recovery failed",
        "pcieport 0000:00:01.1: AER: aer_uncor_severity: 0x00462010",
        "pcieport 0000:00:01.1: AER: can't recover (no error_detected callback)",
        "pcieport 0000:00:01.1: broken device, retraining non-functional downstream link at 2.5GT/s",
    ],
)
def test_what_the_bus_lost_counts_of_gpus_and_the_ports_above_them(line: str) -> None:
    log = f"{AT}kernel: {line}\n"

    assert [(fault.kind, fault.bus_id) for fault in read_log(log, {"0000:07:00.0", "0000:00:01.1"}).faults or ()] == [
        ("bus", "0000:00:01.1")
    ]
    assert read_log(log, {"0000:07:00.0"}).faults == ()


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:00:01.1: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "pcieport 0000:00:01.1: pciehp: Slot(0): Link Up",
        "pcieport 0000:00:01.1: pciehp: Slot(0): Card present",
        "pcieport 0000:00:01.1: PME: Signaling with IRQ 40",
    ],
)
def test_what_the_bus_repaired_is_no_fault(line: str) -> None:
    assert read_log(f"{AT}kernel: {line}\n", {"0000:00:01.1"}).faults == ()


def test_a_message_of_several_lines_names_its_gpu() -> None:
    """The address stands in the second line."""
    log = f"{AT}NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n{' ' * 36}NVRM: BAR1 is 0M @ 0x0 (PCI:0000:56:00.0)\n"

    assert [(fault.kind, fault.bus_id) for fault in read_log(log).faults or ()] == [("region", "0000:56:00.0")]


def test_a_consequence_is_not_said_beside_its_cause() -> None:
    """A probe that failed follows from the line before it; of two GPUs each keeps its own."""
    found = read(
        "NVRM: GPU 0000:01:00.0: GPU does not have the necessary power cables connected.",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x1c:1603)",
        "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x62:0xffff:1863)",
        "NVRM: GPU 0000:02:00.0: rm_init_adapter failed, device minor number 1",
        "NVRM: The NVIDIA probe routine failed for 2 device(s).",
        "NVRM: None of the NVIDIA devices were initialized.",
    )

    assert [(fault.kind, fault.bus_id, fault.count) for fault in found] == [
        ("power-cable", "0000:01:00.0", 1),
        ("start", "0000:02:00.0", 2),
    ]
    assert "0x62:0xffff" in found[1].text


def test_a_probe_that_failed_is_not_said_beside_a_cause_without_an_address() -> None:
    found = read("NVRM: Can't find an IRQ for your NVIDIA card!", "nvidia: probe of 0000:01:00.0 failed with error -1")

    assert [fault.kind for fault in found] == ["interrupt"]
    assert [fault.kind for fault in read("nvidia: probe of 0000:01:00.0 failed with error -1")] == ["probe"]


def test_a_hang_does_not_explain_a_start_that_failed() -> None:
    found = read("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!", "amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init")

    assert [fault.kind for fault in found] == ["hung", "start"]


def test_a_line_that_names_no_gpu_is_not_said_beside_the_same_of_one() -> None:
    """Older kernels write the hang without an address, and the reset that follows with one."""
    hang = "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3"

    assert [(fault.kind, fault.bus_id) for fault in read(hang, "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!")] == [
        ("hung", "0000:03:00.0")
    ]
    assert [(fault.kind, fault.bus_id) for fault in read(hang)] == [("hung", None)]


def test_a_gpu_that_was_given_up_is_not_said_beside_the_firmware_that_did_not_start() -> None:
    found = read(
        "i915 0000:03:00.0: [drm] *ERROR* GT0: GuC initialization failed -ENOEXEC",
        "i915 0000:03:00.0: [drm] *ERROR* GT0: Enabling uc failed (-5)",
        "i915 0000:03:00.0: [drm] *ERROR* GT0: Failed to initialize GPU, declaring it wedged!",
        "i915 0000:04:00.0: [drm] *ERROR* GT0: Failed to initialize GPU, declaring it wedged!",
    )

    assert [(fault.kind, fault.bus_id, fault.count) for fault in found] == [
        ("firmware-load", "0000:03:00.0", 2),
        ("wedged", "0000:04:00.0", 1),
    ]


def test_what_failed_before_a_start_is_said_of_the_gpu_that_did_not_start() -> None:
    """The driver names the GPU in the last line only."""
    found = read(
        "NVRM: kgspWaitForGfwBootOk_TU102: failed to wait for GFW boot complete: 0x55 VBIOS version 90.17.99.00.01",
        "NVRM: kgspWaitForGfwBootOk_TU102: (the GPU may be in a bad state and may need to be reset)",
        "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM",
        "NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x62:0x55:1860)",
        "NVRM: GPU 0000:1b:00.0: rm_init_adapter failed, device minor number 0",
    )

    assert [(fault.kind, fault.bus_id) for fault in found] == [("boot", "0000:1b:00.0")]
    assert "GFW boot complete" in found[0].text


def test_of_two_gpus_that_did_not_start_a_line_without_an_address_is_of_neither() -> None:
    found = read(
        "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM",
        "NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x62:0x55:1860)",
        "NVRM: GPU 0000:2b:00.0: RmInitAdapter failed! (0x24:0x1c:1603)",
    )

    assert [(fault.kind, fault.bus_id) for fault in found] == [("boot", None), ("start", "0000:1b:00.0"), ("start", "0000:2b:00.0")]


def test_a_gpu_that_fell_off_the_bus_explains_what_its_firmware_does_not_answer() -> None:
    silent = "NVRM: GPU0 _issueRpcAndWait: rpcSendMessage failed with status 0x0000000f for fn 78!"

    assert [fault.kind for fault in read("NVRM: GPU 0000:02:00.0: GPU has fallen off the bus.", silent)] == ["lost"]
    assert read("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", silent) == []
    assert [fault.kind for fault in read(silent)] == ["firmware"]


def test_a_gpu_that_sleeps_and_is_asked_is_no_fault() -> None:
    """Status 0x11 is NV_ERR_GPU_NOT_FULL_POWER: nvidia-powerd sets a limit of a GPU that is off for now."""
    assert read("NVRM: _issueRpcAndWait: rpcSendMessage failed with status 0x00000011 for fn 76!") == []


def test_a_gpu_that_is_reset_as_somebody_asked_and_details_of_a_start_are_no_faults() -> None:
    assert read("NVRM: GPU0 _kgspLogRpcSanityCheckFailure: GPU0 sanity check failed 0x67 waiting for RPC response from GSP.") == []
    assert read("NVRM: GPU0 kfspCheckForClockBoostCapability_GB100: FSP doesn't have clock boost capability") == []
    assert (
        read("NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: PRH failed to update thermal limit! @ platform_request_handler.c:855") == []
    )


def test_a_gpu_without_room_for_its_firmware_says_so_and_not_what_follows() -> None:
    found = read(
        "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from kgspCreateRadix3(p) @ k.c:4502",
        "NVRM: RmInitAdapter: Cannot initialize GSP firmware RM",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x51:1941)",
    )

    assert [(fault.kind, fault.bus_id) for fault in found] == [("room", "0000:01:00.0")]


def test_a_late_heartbeat_is_said_only_where_nothing_worse_is() -> None:
    beat = "NVRM: GPU0 _kgspRpcRecvPoll: GSP RM heartbeat timed out"

    assert [fault.kind for fault in read(beat)] == ["late"]
    assert [fault.kind for fault in read(beat, "NVRM: GPU0 _issueRpcAndWait: rpcRecvPoll timedout for fn 76!")] == ["firmware"]
    assert read(beat, "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)") == []


CRASH = (
    "BUG: unable to handle kernel NULL pointer dereference at 00000000000000b1",
    "PGD 5c9846d067 P4D 5c9846d067 PUD 5c9847f067 PMD 0",
    "Oops: 0000 [#1] SMP NOPTI",
    "CPU: 33 PID: 4564 Comm: sbatchd Kdump: loaded Tainted: P OE 4.18.0 #1",
)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("RIP: 0010:_nv031695rm+0x79/0x940 [nvidia]", "nvidia crashed in _nv031695rm: BUG: unable"),
        ("IP: [<ffffffffc075549f>] _nv011745rm+0x1f/0x170 [nvidia]", "nvidia crashed in _nv011745rm: BUG: unable"),
        ("RIP: 0010:uvm_hmm_unregister_gpu+0x40/0xb0 [nvidia_uvm a327008b008e]", "nvidia_uvm crashed in uvm_hmm_unregister_gpu"),
        ("RIP: 0010:amdgpu_bo_list_set+0x196/0x3d0 [amdgpu]", "amdgpu crashed in amdgpu_bo_list_set"),
        ("pc : xe_sched_job_create+0x4c/0x200 [xe]", "xe crashed in xe_sched_job_create"),
    ],
)
def test_a_crash_of_the_kernel_is_of_the_driver_in_whose_code_it_is(place: str, text: str) -> None:
    (fault,) = read(*CRASH, place, "Code: 0f 1f 44 00", place)

    assert fault.kind == "crash"
    assert fault.text.startswith(text)


NOWHERE = (*CRASH, "RIP: 0010:0x0", "Code: Unable to access opcode bytes at 0xffffffffffffffd6.", "Call Trace:", " <TASK>")


def test_a_jump_to_where_no_code_is_was_made_by_the_nearest_module() -> None:
    stack = (" ? nv_open_q+0x1/0x2 [nvidia]", " process_one_work+0x17f/0x330", " uvm_va_range_destroy+0x1a5/0x560 [nvidia_uvm]")

    (fault,) = read(*NOWHERE, *stack, " nvidia_ioctl+0x10/0x20 [nvidia]", "RIP: 0033:0x7f0b8d")

    assert fault.kind == "crash"
    assert fault.text.startswith("nvidia_uvm crashed in uvm_va_range_destroy")


@pytest.mark.parametrize(
    "stack",
    [
        (" ext4_find_entry+0x10/0x20 [ext4]", " nvidia_ioctl+0x10/0x20 [nvidia]"),
        (" process_one_work+0x17f/0x330", "RIP: 0033:0x7f0b8d", " nvidia_ioctl+0x10/0x20 [nvidia]"),
        (" process_one_work+0x17f/0x330", "---[ end trace 0000000000000000 ]---", " nvidia_ioctl+0x10/0x20 [nvidia]"),
    ],
)
def test_a_jump_by_another_module_or_before_another_stack_is_not_the_drivers(stack: tuple[str, ...]) -> None:
    assert read(*NOWHERE, *stack) == []


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "traps: python[3097] general protection fault ip:7f00fdcb09df sp:7efe60cfa850 error:0 in libamdhip64.so.7.2.70201[2b09df,7f00fda23000+481000]",
            "python crashed in libamdhip64.so.7.2.70201",
        ),
        (
            "python3[1902]: segfault at 18 ip 00007f2c8a1b09df sp 00007ffc3a1fa850 error 4 in libze_intel_gpu.so.1.15.37833[2b09df,7f2c89f23000+481000] likely on CPU 3",
            "python3 crashed in libze_intel_gpu.so.1.15.37833",
        ),
        (
            "traps: pt_main_thread[77] trap invalid opcode ip:7f00 sp:7efe error:0 in libnccl.so.2[10,7f00+48]",
            "pt_main_thread crashed in libnccl.so.2",
        ),
    ],
)
def test_a_crash_of_a_program_is_of_the_library_in_which_it_was(line: str, text: str) -> None:
    (fault,) = read(line, line.replace("[3097]", "[3267]"))

    assert (fault.kind, fault.text, fault.count) == ("library", text, 2)


@pytest.mark.parametrize(
    "line",
    [
        "plasmashell[2196]: segfault at 10 ip 00007f2338eba517 sp 00007ffe298400c0 error 4 in libc.so.6[ba517,7f2338e24000+1ad000]",
        "python3[1902]: segfault at 18 ip 00007f2c8a1b09df sp 00007ffc3a1fa850 error 4 in libtorch_python.so[2b09df,7f2c89f23000+481000]",
        "python3[1902]: loaded libcuda.so.1[10]",
        "gnome-shell[1234]: segfault at 0 ip 00007f sp 00007f error 4 in libnvidia-glcore.so.580.95.05[7f,7f+1000]",
        "Xorg[1234]: segfault at 0 ip 00007f sp 00007f error 4 in libnvidia-eglcore.so.580.95.05[7f,7f+1000]",
    ],
)
def test_a_crash_in_another_library_is_not_the_gpus(line: str) -> None:
    assert read(line, line) == []


def test_crashes_in_two_libraries_are_counted_apart() -> None:
    line = "python3[7]: segfault at 0 ip 00007f sp 00007f error 4 in {}[7f,7f+1000]"
    once, twice = line.format("libcuda.so.580.95.05"), line.format("libnvidia-ptxjitcompiler.so.580.95.05")

    assert [(fault.name, fault.count) for fault in read(once, twice, twice)] == [
        ("libcuda.so.580.95.05", 1),
        ("libnvidia-ptxjitcompiler.so.580.95.05", 2),
    ]


def test_each_parameter_that_a_driver_does_not_know_is_told() -> None:
    first, second = "nvidia_drm: unknown parameter 'fbdev' ignored", "amdgpu: unknown parameter 'gtt_size' ignored"

    assert [(fault.text, fault.count) for fault in read(first, second, first)] == [(first, 2), (second, 1)]


def test_a_crash_of_a_program_hides_no_crash_of_the_driver() -> None:
    """Both begin with the words `general protection fault`."""
    found = read(
        "traps: python[3097] general protection fault ip:7f00 sp:7efe error:0 in libm.so.6[2b,7f+48]",
        "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP NOPTI",
        "RIP: 0010:amdgpu_bo_list_set+0x196/0x3d0 [amdgpu]",
    )

    assert [fault.kind for fault in found] == ["crash"]


@pytest.mark.parametrize(
    "lines",
    [
        (*CRASH, "RIP: 0010:ext4_find_entry+0x10/0x20 [ext4]", "RIP: 0010:nvidia_ioctl+0x10/0x20 [nvidia]"),
        (*CRASH, "RIP: 0010:__list_del+0x10/0x20", "? nvidia_unlocked_ioctl+0x335/0x770 [nvidia]"),
        ("WARNING: CPU: 2 PID: 812 at nvidia-drm/nvidia-drm-drv.c:604 nv_drm_dev_load", "RIP: 0010:nv_drm_dev_load+0x10/0x20 [nvidia_drm]"),
        ("RIP: 0010:nv_drm_dev_load+0x10/0x20 [nvidia_drm]",),
    ],
)
def test_a_crash_elsewhere_and_a_warning_are_no_crash_of_the_driver(lines: tuple[str, ...]) -> None:
    assert read(*lines) == []


def test_an_xid_of_another_gpu_explains_nothing() -> None:
    fallen = "NVRM: GPU 0000:02:00.0: GPU has fallen off the bus."

    assert read("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", fallen) == []
    assert [fault.kind for fault in read("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", fallen)] == ["lost"]


def test_each_kind_has_advice_or_a_rule_of_its_own() -> None:
    """A kind that no rule knows would be read and never said."""
    tables = read_file(Path(__file__).parents[2] / "rules" / "xids.toml").table

    kinds = {*NVIDIA, *OTHERS, *TEGRA, *NEURON, *log_faults.ALL}
    assert kinds - set(log_faults.GOES_ON) == tables["fault_advice"].keys()


WAITS = "INFO: task python3.11:15277 blocked for more than 120 seconds."


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ((" schedule+0x4e/0xb0", " ? __kmalloc+0x1/0x2 [ext4]", " uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]"), "in uvm_ioctl of nvidia_uvm"),
        (("[  721.02] [<ffffffffa09c376e>] uvm_gpu_retain_by_uuid+0x1e/0x40 [nvidia_uvm]",), "in uvm_gpu_retain_by_uuid of nvidia_uvm"),
        ((" drm_ioctl+0x2a/0x40 [drm]", " nv_drm_atomic_apply+0x7b0/0x890 [nvidia_drm]"), "in nv_drm_atomic_apply of nvidia_drm"),
        ((" amdgpu_fence_wait+0x4c/0x200 [amdgpu]",), "in amdgpu_fence_wait of amdgpu"),
    ],
)
def test_a_program_that_waits_in_the_kernel_is_told_where_a_driver_of_gpus_keeps_it(frames: tuple[str, ...], text: str) -> None:
    (fault,) = read(WAITS, "Call Trace:", *frames)

    assert (fault.kind, fault.text) == ("hung", f"task python3.11:15277 blocked for more than 120 seconds {text}")


@pytest.mark.parametrize(
    "lines",
    [
        (WAITS, " nfs_wait_bit_killable+0x1e/0x90 [nfs]", " nvidia_mmap+0x1/0x2 [nvidia]"),
        (WAITS, " nvfs_io+0x1/0x2 [nvidia_fs]"),
        (WAITS, " schedule+0x4e/0xb0"),
        (WAITS, *(" schedule+0x4e/0xb0" for _ in range(80)), " uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]"),
        (" uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]",),
    ],
)
def test_who_waits_elsewhere_waits_for_no_gpu(lines: tuple[str, ...]) -> None:
    assert read(*lines) == []


@pytest.mark.parametrize("between", ["\n               ", f"\n{AT}"])
def test_a_gpu_that_wants_another_module_is_named_in_each_form_of_the_log(between: str) -> None:
    """And the failed start that follows from it is not told beside it, whose advice is another one."""
    refused = f"NVRM: The NVIDIA GPU {PLACE} (PCI ID: 10de:2c3a){between}NVRM: installed in this system requires use of the NVIDIA open kernel modules."

    (fault,) = read(refused, f"NVRM: GPU {PLACE}: RmInitAdapter failed! (0x22:0x56:897)")

    assert (fault.kind, fault.bus_id) == ("open-module", PLACE)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("NVRM: Open nvidia.ko is only ready for use on Data Center GPUs.", "closed-module"),
        ("NVRM: installed in this system requires use of the NVIDIA open kernel modules.", "open-module"),
    ],
)
def test_a_wrong_module_is_told_alone_where_its_line_names_no_gpu(line: str, kind: str) -> None:
    """The starts that fail by it have another cure; a line behind another that ends in a bracket is none of its rest."""
    starts = [f"NVRM: GPU 0000:{bus}:00.0: RmInitAdapter failed! (0x22:0x56:897)" for bus in ("01", "41")]

    assert [fault.kind for fault in read(line, *starts)] == [kind]
    assert [fault.kind for fault in read(starts[0], line)] == [kind]
    assert [fault.kind for fault in read(line, "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.")] == [kind, "lost"]


def test_memory_that_a_driver_does_not_get_is_told_of_the_program_that_asked() -> None:
    """The kernel's own functions stand above the driver's in the stack."""
    line = "train_process: page allocation failure: order:5, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), nodemask=(null)"
    stack = ("Call Trace:", " warn_alloc+0x7b/0xe0", " __alloc_pages_slowpath+0xd3c/0xd80", " os_lock_user_pages+0x8d/0x1a0 [nvidia]")

    assert [(fault.kind, fault.text) for fault in read(line, *stack)] == [
        ("full", "train_process: page allocation failure in os_lock_user_pages of nvidia")
    ]
    assert read(line, *stack[:-1], " ext4_mb_load+0x8d/0x1a0 [ext4]") == []
    (fault,) = read(line.replace("train_process", "kworker/0:1"), *stack)
    assert fault.text.startswith("kworker/0:1: page")


def test_a_cpu_that_stands_in_a_driver_is_told_whatever_watches_it() -> None:
    place = "RIP: 0010:os_get_current_time+0x9/0x20 [nvidia]"
    stalls = ("rcu: INFO: rcu_preempt self-detected stall on CPU", "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:")
    found = [
        read(line, place)[0].kind
        for line in (*stalls, "watchdog: BUG: soft lockup - CPU#1 stuck for 26s!", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 4")
    ]

    assert found == ["crash"] * 4


PLACE = "0000:01:00.0"


def of_bus(*lines: str) -> list[str]:
    return [fault.kind for fault in read_log("".join(f"{AT}{line}\n" for line in lines), (PLACE,)).faults or ()]


@pytest.mark.parametrize(
    "line",
    [
        f"pci {PLACE}: BAR 1 [mem size 0x10000000 64bit pref]: failed to assign",
        f"pci {PLACE}: BAR 1: failed to assign [mem size 0x800000000 64bit pref]",
    ],
)
def test_a_gpu_without_room_for_its_memory_is_named_by_the_kernel(line: str) -> None:
    assert of_bus(line) == ["region"]
    assert of_bus(line, f"pci {PLACE}: BAR 1: assigned [mem 0x800000000-0xfffffffff 64bit pref]") == [], "at a second try"
    assert of_bus(line.replace("BAR 1", "BAR 6")) == [], "the ROM"
    assert of_bus(line.replace("BAR 1", "VF BAR 0")) == [], "for virtual functions"
    assert of_bus(line.replace("[mem size", "[io  size")) == [], "ports of I/O"
    assert of_bus(line.replace(PLACE, "0000:02:00.0")) == [], "another device"


def test_a_gpu_that_is_kept_for_guests_and_does_not_wake_is_lost() -> None:
    line = f"vfio-pci {PLACE}: Unable to change power state from D3cold to D0, device inaccessible"

    assert of_bus(line) == ["lost"]
    assert of_bus(line.replace(PLACE, "0000:02:00.0")) == [], "another device"
    assert of_bus(f"vfio-pci {PLACE}: resetting", f"vfio-pci {PLACE}: reset done") == []


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU0 kfspFrobulate_GB202: Failed to frobulate the secure partition",
        "NVRM GPU0 kceFrob_IMPL: Timed out waiting for the engine",
        "NVRM: failed to allocate vmap() page descriptor table!",
        "nvidia-uvm: uvm_frob.c:12 uvm_frob[pid:5] error 0x1f",
        "nvlogAllocBuffer nowrap failed",
        "nvgpu: 17000000.gpu             nvgpu_frob_rpc_execute:727  [ERR]  no room in queue",
    ],
)
def test_a_failure_in_words_of_no_table_is_told_as_unknown(line: str) -> None:
    (fault,) = read(f"host kernel: {line}")

    assert (fault.kind, fault.name, fault.count) == ("unknown", "a GPU", 1)


def test_what_is_not_known_is_not_told_beside_what_is() -> None:
    """Drivers write many lines about one fault."""
    unknown = "host kernel: NVRM: GPU0 kfspFrobulate_GB202: Failed to frobulate the secure partition"
    known = "host kernel: NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2168)"
    log = read_log(f"{AT}{unknown}\n{AT}host kernel: NVRM: Xid (PCI:0000:01:00): 31, pid=5, name=python, MMU Fault\n")

    assert [fault.kind for fault in read(unknown, known)] == ["start"]
    assert log.faults == ()
    assert [(fault.kind, fault.count) for fault in read(unknown, unknown, unknown)] == [("unknown", 3)]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  610.57.04  Release Build  (root@archiso)",
        "NVRM: kbifInitLtr_GB202: LTR is disabled in the hierarchy",
        "NVRM: GPU0 PlatformRequestHandler failed to get target temp from SBIOS @ platform_request_handler_ctrl.c:2174",
        "NVRM: GPU0 failed to get platform power mode from SBIOS @ platform_request_handler_ctrl.c:2117",
        "NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: PRH failed to update thermal limit! @ platform_request_handler.c:855",
        "NVRM: GPU0 pfmreqhndlrCallACPI: Unable to retrieve PFM_REQ_HNDLR_PSHAREPARAMS, rc = 59",
        "NVRM: testIfDsmSubFunctionEnabled: GPS ACPI DSM called before _acpiDsmSupportedFuncCacheInit subfunction = 11.",
        "NVRM: refcntRequestReference_IMPL: Failed to enter state 1 (current state: 0, status: 0x00000056)",
        "NVRM: _fabricNotifyEvent: Unable to notify ImexSessionApi",
        "NVRM: GPU at 0000:01:00.0 has software scheduler DISABLED with policy BEST_EFFORT.",
        "NVRM objClInitPcieChipset: *** Chipset Setup Function Error!",
        "NVRM cpuidInfoAMD: Unrecognized AMD processor in cpuidInfoAMD",
        "NVRM: memdescPrintMemdesc: memdesc allocated Aperture SYSTEM MEMORY starting at 0x158e00000 and of size 0x1cfa000",
        "NVRM: rm_power_source_change_event: Failed to handle Power Source change event, status=0x62",
        "NVRM: rpcRmApiControl_GSP: GspRmControl failed: hClient=0xc1d00003; hObject=0x5c000005; cmd=0x20801348; status=0x56",
        "nvidia-gpu 0000:01:00.3: i2c timeout error e0000000",
        "nvidia-modeset: ERROR: GPU:0: Unable to read EDID for display device DP-0",
        "[drm:nv_drm_master_set [nvidia_drm]] *ERROR* [nvidia-drm] [GPU ID 0x00000500] Failed to grab modeset ownership",
        "nvgpu: 17000000.gpu          nvgpu_nvhost_syncpt_init:122  [INFO]  syncpt_unit_base 60000000 syncpt_unit_size 4000000 size 10000",
        "nvgpu: 17000000.gpu                nvgpu_cic_mon_init:75   [ERR]  Err inj callback registration failed: -22",
        "nvidia_uvm: module uses symbols nvUvmInterfaceDisableAccessCntr from proprietary module nvidia, inheriting taint.",
    ],
)
def test_what_stands_in_logs_of_sound_machines_is_not_unknown(line: str) -> None:
    """These are of machines that work: desktops, laptops, GB10, GB200, Jetsons and hosts of virtual GPUs in public reports."""
    assert read(f"host kernel: {line}") == []


@pytest.mark.parametrize(
    "line",
    [
        "nvgpu: 17000000.gpu nvgpu_acr_bootstrap_hs_acr: ACR bootstrap failed",
        "nvgpu: 17000000.gpu nvgpu_finalize_poweron: Failed initialization for: g->ops.acr.acr_construct_execute",
        "nvgpu: 17000000.gpu flcn-1: HS ucode boot failed, err 1b",
        "nvgpu: 17000000.gpu nvgpu_pmu_lsfm_bootstrap_ls_falcon:128  [ERR]  LSF Load failed",
    ],
)
def test_a_gpu_of_a_jetson_that_does_not_start_is_told(line: str) -> None:
    assert [fault.kind for fault in read(f"orin kernel: {line}")] == ["soc-start"]


def test_each_kind_of_unknown_line_is_asked_once_and_only_so_many_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask takes half a millisecond; a log may hold a million lines, each of another kind."""
    asked: list[str] = []
    monkeypatch.setattr(unknown_lines, "read_fault", lambda line, _: asked.append(line))
    letters = "ghijklmnopqrstuvw"
    words = [first + second for first in letters for second in letters]
    lines = [f"2026-11-20T11:00:00 amdgpu 0000:83:00.0: amdgpu: failed to zz{word}" for word in words for _ in range(2)]

    (fault,) = unknown_lines.unknown("", "\n".join(lines))

    assert len(words) > unknown_lines.MAX_KINDS == len(asked) == len(set(asked))
    assert fault.count == len(lines)


def test_an_interrupt_that_the_kernel_turned_off_is_said_where_a_gpu_handles_it() -> None:
    began = 'irq 16: nobody cared (try booting with the "irqpoll" option)'
    ours = "[<00000000d8cfcf6e>] nvidia_isr [nvidia] threaded [<000000005d0f1e51>] nvidia_isr_kthread_bh [nvidia]"
    others = "[<00000000d8cfcf6e>] i801_isr [i2c_i801]"

    def said(handler: str) -> list[str]:
        lines = (began, " dump_stack+0x6d/0x8b", "handlers:", handler, "Disabling IRQ #16")
        return [fault.kind for fault in read_log("".join(f"{AT}kernel: {line}\n" for line in lines)).faults or ()]

    assert (said(ours), said(others), said(f"{others}\n{AT}kernel: {ours}")) == (["interrupt"], [], ["interrupt"])


def test_a_jetson_that_gets_too_little_power_says_so() -> None:
    assert [fault.kind for fault in read_log(f"{AT}kernel: soctherm: OC ALARM 0x00000001\n").faults or ()] == ["over-current"]
