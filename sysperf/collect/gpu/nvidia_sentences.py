"""Sentences of NVIDIA's drivers about GPUs, links and NVSwitches that are ill where no Xid says it, by kind.

NVIDIA   https://github.com/NVIDIA/open-gpu-kernel-modules, 555.58.02: each message of the level of errors. Most are of
         kernel-open/nvidia/{nv.c,nv-pci.c,linux_nvswitch.c}, src/nvidia/arch/nvalloc/unix/src/{osinit.c,osapi.c}, src/nvidia-modeset,
         src/nvidia/src/kernel/gpu/{gsp,fsp,nvlink,bif,intr,conf_compute,rc}, src/nvidia/src/kernel/vgpu/rpc.c. Of newer drivers, to
         the one after 610: how the firmware is started and watched (gsp/kernel_gsp.c, fsp), and what their Xids say (interface/events/gpu).
CUDA     https://docs.nvidia.com/cuda/archive/13.2.1/cuda-features-archive/index.html: its known issues
"""

NVIDIA = {
    "power-cable": r"GPU does not have the necessary power cables connected",
    "region": r"PCI I/O region assigned to your NVIDIA device is invalid|64-bit BAR mapped above|attempting to resize PCIe BARs"
    r"|No address space to allocate resized BAR1|Failed to re-allocate BAR1",
    "interrupt": r"[Cc]an't find an IRQ for your NVIDIA card|No interrupts of any type are available|Tried to get IRQ [0-9]{1,5}, but"
    r"|request_irq\(\) failed|Going over RM unhandled interrupt threshold|Stuck interrupt detected|Interrupt is stuck\. Bailing"
    r"|No supported interrupt mechanism was found|Interrupts disabled to avoid a storm|failed to get IRQ",
    "module": r"version magic '.{1,80}' should be|(?:disagrees about version of|Unknown) symbol (?!ib_|rdma_)\S"
    r"|Version mismatch: nvidia(?:-modeset)?\.ko",
    "mismatch": r"API mismatch: the client|Version mismatch, kernel version",
    "taken": r"probe routine was not called|request_mem_region failed|is already bound to",
    "removed": r"with non-zero usage count|Failed removal of device",
    "excluded": r"open\(\) not permitted for excluded|Device is currently unavailable",
    "vgpu": r"(?:SET_GUEST_SYSTEM_INFO(?:_EXT)?|GET_STATIC_DATA|GET_CONSOLIDATED_GR_STATIC_INFO) : failed"
    r"|Guest driver is incompatible with host driver|vGPU type is not supported|Aborting probe for VF",
    "memory-node": r"Failing GPU memory onlining|auto onlining failed|Hotplugged GPU memory NUMA node|: Memory add failed"
    r"|numa memblock size of zero",
    "open-module": r"requires use of the NVIDIA open kernel modules",
    "closed-module": r"not supported by open\b|only ready for use on Data Center GPUs",
    "unsupported": r"installed in this system is not supported by the\b|supported through the NVIDIA .{1,40} Legacy drivers"
    r"|ignoring the legacy GPU|not supported through the\b",
    "firmware-file": r"Direct firmware load for nvidia/\S{1,60} failed|version mismatch: got version \S{1,40}, expected"
    r"|need firmware to initialize GSP|No firmware image found|Cannot find correct ucode archive",
    "confidential": r"ConfCompute ?: (?:Failed|Fatal)|[CG]PU does not support confidential compute|compute capability is not enabled"
    r"|SPDM: .{1,60}(?:failed|did not match)|SPDM handshake with Responder failed|waiting for (?:response from )?SPDM"
    r"|session with SPDM Responder|Failed to perform key rotation",
    "firmware": r"\*{3,80} (?:GSP (?:Timeout|Failure)|GSP-CrashCat Report|LibOS Task Watchdog Report)|rpcRecvPoll (?:timedout|failed)"
    r"|rpcSendMessage failed(?! with status 0x0{6}11\b)|GSP-RM entered into ICD|Rate limiting GSP RPC error prints"
    r"|LibOS (?:heartbeat timed out|Heartbeat Timeout detected)"
    r"|(?:SET_GUEST_SYSTEM_INFO|GET_GSP_STATIC_INFO) failed: 0x",
    "late": r"GSP[ -]RM (?:heartbeat timed out|Heartbeat Timeout detected)",
    "rom": r"[Ff]ailed to copy vbios|did not find valid ROM signature|failed to extract VBIOS image|failed to locate expansion ROMs"
    r"|failed to parse FWSEC ucode",
    "iommu": r"Failed to create a DMA mapping|osIovaMap: failed to map|swiotlb buffer is full",
    "replace": r"blacklisted maximum number of pages",
    "memory": r"\[NV_ERR_(?:ECC_ERROR|MEMORY_TRAINING_FAILED)\]|ECC error encountered, GPU|page offlining failed",
    "link": r"\[NV_ERR_NVLINK_[A-Z_]{3,40}\]|NVLink: .{0,40}failed (?:to train|for) link|to train link [0-9]{1,2} to remote"
    r"|Links failed to train for|link training between GPU[0-9]{1,3} and SWITCH failed|FAILED TO TRAIN CPU"
    r"|marked Degraded for error on link"
    r"|no NVSwitch connectivity to the GPU|Failed to activate link[0-9]|update Rx Detect Link mask|postRxDetLinkMask failed",
    "switch": r"(?<=nvswitch)[0-9]{0,3}: ?(?:Failed (?:to (?:initialize (?:device|interrupt)|map BAR0|enable PCI)|during device post)"
    r"|Blacklisted|unrecoverable error in ISR)",
    "room": r"Error preparing GSP-RM image|\[NV_ERR_NO_MEMORY\].{0,40} returned from kgsp",
    "full": r"\[NV_ERR_NO_MEMORY\]",
    "pinning": r"Cannot map memory with base addr 0x[0-9a-f]{1,16} and size of",
    "screen": r"NvKmsKapiMemory",
    "lost": r"fallen off the bus|GPU is lost|\[NV_ERR_GPU_IS_LOST\]|API_GPU_ATTACHED_SANITY_CHECK failed|GPU is detached, bailing"
    r"|Check whether GPU is present on the bus|PCI channel for the device is offline|it still appears unreachable"
    r"|(?:polling GPU|GPU not) back on|GPU sanity check failed|: A fatal error was detected\.|Bad TimeLo value ffffffff"
    r"|GPU[0-9]{1,3} sanity check failed 0xf\b",
    "start": r"RmInitAdapter failed|rm_init_adapter\S{0,6} failed|rm_init_adapter .{1,60} failed|bailing out of RmInitAdapter"
    r"|rm_init_private_state\(\) failed|nv_linux_init_open_q\(\) failed|pci_enable_device failed|Failed to map regs registers"
    r"|rm_init_rm\(\) failed|failed to initialize module|RM cannot boot|VBIOS boot failed|SEC_FAULT lockdown"
    r"|\*\*\* Cannot (?:attach gpu|pre-initialize|initialize the device|load state)",
    "probe": r"probe routine failed|None of the NVIDIA .{1,40} were initialized",
    "reset": r"\[NV_ERR_(?:RESET_REQUIRED|GPU_IN_FULLCHIP_RESET)\]|GPU marked for reset",
    "boot": r"unexpected WPR2 already up|in a bad state and may need to be reset|failed to wait for GFW"
    r"|failed to execute (?:Booter|FWSEC|Scrubber)|Booter failed with non-zero|Failed to boot GSP|Cannot initialize GSP firmware"
    r"|waiting for (?:lockdown release|GSP target mask release|GSP falcon reset|SEC2-RTOS|RISC-V to halt)|GSP-FMC reported an error"
    r"|FSP (?:boot c|async c|c)\w{2,6} (?:failed|timed out)|FSP secure boot partition timed out|FSP response reported error"
    r"|error message from FSP|waiting for FSP command queue",
    "hmm": r"request_free_mem_region\(\) err -34",
    "uvm": r"Encountered a global fatal error",
    "uvm-reboot": r"requiring os reboot to recover",
    "peer": r"while calling nvidia_p2p_\w{3,20}\(\)|error while registering (?:traditional|nc) client"
    r"|(?:disagrees about version of|Unknown) symbol (?:ib|rdma)_",
    "hung": r"RC watchdog: GPU is probably locked|Failed to query display engine channel state|Error while waiting for GPU progress"
    r"|Idling display engine timed out|[Tt]imed [Oo]ut waiting for (?:core channel idle|CE semaphore|bar[12] binding)"
    r"|Watchdog detected a hang",
}
