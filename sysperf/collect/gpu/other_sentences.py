"""What drivers of AMD's and Intel's GPUs, of Gaudi, Neuron and Jetsons write when one is ill, by kind.

Linux   drivers/gpu/drm/{amd/amdgpu,amd/amdkfd,amd/pm,xe,i915} of 6.1 to 6.12, xe_{hw_error,ras,survivability_mode}.c,
        amdgpu_userq.c, mes_{userqueue,v12_1}.c and amd/ras of newer ones
        drivers/accel/habanalabs of 6.12
NVIDIA  drivers/gpu/nvgpu/os/linux/linux-channel.c, whose numbers are those of Xids; its start as
        https://github.com/NVIDIA-AI-IOT/jetson-ai-lab/issues/427 and https://github.com/balena-os/balena-jetson-orin/issues/464 have it
Amazon  https://awsdocs-neuron.readthedocs-hosted.com/en/latest/neuron-runtime/nrt-troubleshoot.html
"""

OTHERS = {
    "unsupported": r"graphics device [0-9a-f]{4} is not (?:properly|officially) supported|Hardware reports unknown \w{5,8} version",
    "full": r"Not enough memory for command submission|Buffer eviction failed|exceeds resident system memory limit|VM worker error: -12\b",
    "rom": r"Unable to locate a BIOS ROM|[Nn]o vBIOS found",
    "replace": r"RAS records:[0-9]{1,6} exceeds? (?:90% of )?threshold|Saved bad pages ?\(?[0-9]{1,6}\)? reaches threshold"
    r"|Replace this GPU|GPU is in BAD status",
    "memory": r"(?<! 0 )(?<! 0 new )(?:uncorrectable|deferred) hardware errors?\b|[Pp]oison (?:is consumed|consumption, )"
    r"|(?<! 0 new )poison consumption detected"
    r"|reported (?:NON)?FATAL error|\[(?:Hardware Error|RAS)\]: (?!HEC FW).{1,80}\b[Uu]ncorrectable[- ][Ee]rror"
    r"|Uncorrectable error detected in UMC|CP (?:EDC/)?ECC ERROR|CP EDC/ECC error detected|(?:GCEA|MMHUB EA) err detected"
    r"|Mem Ecc Status: 0x|RLC \S{1,10} FED IRQ|RAS Intr triggered, device disabled|sq_intr: error.{1,120}[ _]type [03]\b"
    r"|memory training failed|hbm (?:memory|bist) test failed|[Ff]ailed to (?:initialize|process) memory training"
    r"|Memory training initialization failure|[Ss]end (?:long )?training msg failed",
    "lost": r"device lost from bus|MMIO access returns 0xFFFFFFFF|MMIO unreliable|Lost access to MMIO BAR|PCIe error recovery failed",
    "region": r"pci resource is not valid|Tile without any CPU visible VRAM",
    "start": r"Fatal error during GPU init|Device initialization failed"
    r"|(?!(?:early|sw)_init of IP block \S{1,40} failed -2\b)[a-z]{2,5}_init of IP block \S{1,40} failed"
    r"|LMEM not initialized by firmware|gpu post error|ring (?!kiq_)\S{1,40} test failed|IB test failed on|NOT added due to errors"
    r"|ib ring test failed|Failed to setup region|Failed to read back from memory region"
    r"|amdgpu_device_ip_(?:late_)?init failed|ACK should not assert"
    r"|Doesn't get (?:TRN_MSG_ACK|msg:[0-9]{1,4}|ack|READY_TO_ACCESS_GPU) from pf|VF exclusive mode timeout"
    r"|asic (?:atom )?init failed|asic reset on init failed|atombios stuck|discovery failed: -[0-9]"
    r"|amdgpu_discovery_init failed|invalid ip discovery binary|(?:K[CG]Q|kfq) enable failed|KIQ failed to set resources"
    r"|failed to map compute queue|Error (?:initializing|starting) (?:queue manager|interrupts|KFD node)"
    r"|Error adding device to topology|Error (?:creating|parsing) VCRAT table for GPU"
    r"|KFD is disabled due to module initialization failure|Kernel queue test failed|Won't add GPU to topology"
    r"|Survivability Boot Status : Critical|fw_status: 0x\w{1,16}, (?:data abort exception|unknown boot time errors)"
    r"|hwe \S{1,10}: .{0,24}failed|\) kernel bo (?:map|pin) failed|[Ff]ailed initializing (?:VRAM heap|buffer object driver|fences)"
    r"|failed to map registers|amdgpu_device_wb_init failed|hw_init [0-9]{1,2} failed|pci_enable_device failed"
    r"|Error initializing (?:gtt sub-allocator|doorbell aperture)|Error in starting scheduler|failed to register HMM device memory"
    r"|Failed to (?:init (?:MEC|KIQ|rlc) BOs|update GPU to sysfs topology)",
    "survival": r"In Survivability Mode|Survivability mode enabled|Firmware flash required|HEC FW .{4,40} reported",
    "reset-failed": r"GPU reset\([0-9]{1,6}\) failed|GPU reset end with ret = -[0-9]|GPU Recovery Failed|[Mm]ode ?[0-9] reset failed"
    r"|Failed to reset chip|GT[0-9]{1,3}: (?:reset|resume) failed|Failed to reset GuC"
    r"|Failed to initialise HW following reset|resume of IP block \S{1,40} failed|ASIC reset failed|GuC reset timed out"
    r"|GPU pre asic reset failed|amdgpu_device_ip_resume failed|failed to send mode2 (?:reset|message)"
    r"|[Ff]ailed to mode2? reset|reinit gpus failure|GPU reset retry is beyond|recover vram bo from shadow failed"
    r"|ring test failed after ring|(?:load failed|reenable failed) after reset|Driver-FLR-\w{5,8} wait .{5,20} failed",
    "wedged": r"has declared device \S{7,16} as wedged|declaring (?:it )?wedged|timed out, cancelling all in-flight rendering",
    "heat": r"GPU over temperature range|Critical Temperature Fault|shutdown due to GPU [HS]W CTF",
    "firmware-file": r"GuC firmware \S{1,80}: fetch failed"
    r"|Failed to (?:load|init) firmware \"?(?!\S*(?:_ta|_cap|_dmcu|isp|vcn|uvd|vce|jpeg|umsch|vpe))\S{1,60}\"?"
    r"|(?<!IP block )[Ff]ailed to (?:load|init|get|validate) "
    r"(?!.{0,12}(?:vcn|uvd|vce|jpeg|umsch|vpe|isp|dmcu|DMC|HuC|GSC))\S{1,20} firmware\b"
    r"|(?:early|sw)_init of IP block \S{1,40} failed -2\b|amdgpu requires firmware installed|Unsupported GuC v|can't load firmware",
    "firmware-load": r"PSP (?:create ring|firmware loading|load \S{1,12}|tmr init|ring init|resume) failed|Failed to load toc"
    r"|GuC initialization failed|Enabling uc failed|\*ERROR\* (?:Tile[0-9]{1,2}: )?GT[0-9]{1,2}: load failed: status"
    r"|Failed to initialize uC|PCODE initialization timed|firmware load failed at boot time"
    r"|Failed to wait for (?:sOS|trust OS) ready|ucode autoload timeout|[Ff]ailed to (?:start|wait) rlc autoload"
    r"|IMU (?:start timeout|ucode load failed)|failed to load MES (?:kiq )?fw"
    r"|firmware (?:signature verification failed|exception\. EIP)|PSP load \S{2,5} drv failed|SMU Firmware start failed"
    r"|powerplay hw init failed|Failed to (?:enable gfx imu|post smu init|init smc tables|setup default dpm clock tables)!"
    r"|SMC (?:is not ready|engine is not correctly up)|Failed to setup smc hw|Failed to Set(?:Driver|Tools|DramLog)DramAddr"
    r"|Failed to (?:setup pptable|run btc)!|Failed to enable requested dpm features|psp gfx command SETUP_TMR\S{0,8} failed"
    r"|[Ss][Mm][Uu] (?:load firmware|firmware load(?:ing)?) failed|Failed to enable (?:GuC CT|CTB)|DMA for GuC fw failed"
    r"|GuC init failed with|GuC PC (?:Start|reset) failed|SLPC (?:reset action failed|not enabled)",
    "firmware": r"PSP command fence wait failed|SMU: I'm not done with your previous command|SMU may be not in the right state"
    r"|SMU: (?:No response|response:0xFFFFFFFF)|SMU is in hanged state|No response from smu|SMU still servicing msg"
    r"|(?:last message was failed|failed to send (?:pre )?message [0-9a-f]{1,3}) ret is 0\b"
    r"|(?<!GT1: )Timed out wait for G2H|mmio request .{1,40}: (?:no response|no reply|failure 0x|unexpected reply)"
    r"|G2H channel broken|No forward process on H2G|reached retry limit"
    r"|CTB (?:receive failed|is dead)|CT dequeue failed"
    r"|CT: (?:No response for request|Communication stalled|Corrupted descriptor)|CT (?:read|write): non-zero status"
    r"|(?:[Ee]arly |GUC: |Received )(?:GuC )?(?:[Cc]rash dump|[Ee]xception) notification",
    "hung": r"GPU reset begin|GPU reset succeeded, trying to resume|ring \S{1,40} timeout|GPU HANG|Engine reset|Timedout job"
    r"|Kernel-submitted job timed out|VM job timed out|Got hung context|GT[0-9]{1,3}: reset started|reset request timed out"
    r"|MES(?:\([0-9, ]{1,6}\))? (?:failed to respon|ring buffer is full)|[Ff]ailed to detect and reset"
    r"|Fence expiration time out|Ring \S{1,40} reset fail"
    r"|failed to (?:write|read) reg[: ]\S{1,10}(?: wait reg|$)|guilty [1-9][0-9]{0,3}, banned|IP block:\S{1,20} is hung"
    r"|suspend of IP block \S{1,40} failed|Schedule (?:dis|en)able failed to respond"
    r"|Suspend fence, guc_id=.{1,12}failed to respond|Engine reset request failed|engine reset request failed"
    r"|Resetting (?:chip|[a-z]{2,4}[0-9]{1,2}) for|reset due to GPU hang|resumed still in error"
    r"|MES might be in unrecoverable state|fence wait loop timeout expired|unsuccessful queues preemption"
    r"|[Qq]ueue preemption (?:time ?out|failed)|preemption failed|dequeue request time out|Resetting wave fronts"
    r"|queue id \S{1,12} at pasid \S{1,12} is reset|Queues reset on process|failed to (?:add|remove) hardware queue"
    r"|failed to (?:suspend|resume) (?:all )?gangs|failed to (?:reset|unmap) (?:legacy|hardware) queue"
    r"|Failed to (?:evict|restore|suspend|resume|remove|map|unmap|reset) (?:process |all the )?[Qq]ueues?\b"
    r"|Failed to quiesce KFD|failed to execute runlist"
    r"|(?:Suspending|Resuming) all queues failed|fail(?:ed)? to wait on (?:gfx )?hqd deactiv|GFX Watchdog Timeout"
    r"|Timeout waiting for (?:VM flush|sem acquire in VM flush)|(?:timeout waiting|wait) for kiq fence"
    r"|[Ee]rror flushing GPU TLB|TLB flush failed for PASID"
    r"|TLB invalidation (?:fence timeout|response timed out|did not complete)|(?:TD flush|Global invalidation) timeout"
    r"|timeout: rlcg (?:program|faled)|couldn't schedule ib on ring|(?:move|clear) memory with ring turned off"
    r"|Issuing Whole GPU reset|GFX engine hang detected|Scheduler has entered an abnormal state"
    r"|failed to map legacy queue|failed to reg_write_reg_wait|unmap queue failed|destroy mqd failed|Removing bad queue failed"
    r"|Evicting process queues failed|Pending enable failed to respond|reset via MES failed|failed to re?map k[cg]q"
    r"|Force wake domain .{1,30} failed to ack|timed out waiting for forcewake ack",
    "link": r"XGMI: (?!.{0,20}create).{0,60}\b[Ff]ail|XGMI: .{1,60}can not match hive|(?:wafl|xgmi|usr [cd]p) link training failed",
    "program": r"page fault \(src_id|Illegal (?:register access|instruction|opcode) in (?:SDMA )?command stream|Engine memory CAT error"
    r"|Fault response: Unsuccessful|ACC: Unsuccessful|GPU fault detected: [0-9]|VM fault \(0x"
    r"|sq_intr: error.{1,120}[ _]type [12]\b|got unhandled exception",
    "mapping": r"Failed to map (?:VA 0x\w{1,16} in vm|bo to gpuvm)|update_gpuvm_pte\(\) failed|update PTE failed"
    r"|fail(?:ed)? -[0-9]{1,3} (?:to copy memory|dma_map_page|create gart mapping)|DMA map userptr failed"
    r"|userptr can't be mapped to kernel",
    "interrupt": r"Fail(?:ed)? to (?:alloc msi vectors|enable support -|request MSI)|No supported interrupt handler",
    "throttled": r"GPU (?:is throttled|thermal throttling temperature reached), expect performance decrease",
    "queues": r"Expect reduced ROCm performance|No more (?:XGMI )?SDMA queue to allocate|Can't create new usermode queue",
    "unscheduled": r"i915 (?!0000:00:02\.).{10,40}?(?:GuC |GUC: )submission disabled",
    "slow-interrupt": r"Fence fallback timer expired on ring",
    "page-list": r"RAS (?:header invalid|[Tt]able incorrect checksum)|Failed to (?:read|write|load|save) EEPROM table"
    r"|EEPROM failed reading|(?:Reading|Writing) [0-9]{1,6} EEPROM table records error|Failed to (?:add|save) ras bad page",
}
GAUDI = {
    "start": r"Fatal error during habanalabs device init|Failed to initialize (?:accel|hl)[0-9]{1,3}\b"
    r"|[Ff]ailed to initialize the H/W(?! after)|Failed to detect if device is alive(?! after)"
    r"|Device boot error - |Timeout waiting for boot fit load ack",
    "firmware-load": r"Device boot progress - (?:Stuck|DRAM|Thermal)|failed to (?:wait for|load) (?:boot|Linux)|FIT image is corrupted"
    r"|Failed to communicate with Device CPU|failed to initialize CPU",
    "firmware": r"heartbeat (?:failed|event was not received)|Device CPU packet timeout|EQ fault during heartbeat",
    "reset-failed": r"Failed to reset! Device|stopping hard reset|Failed to detect if device is alive after|the H/W after reset",
    "lost": r"PCI (?:frozen|failure) state error",
    "memory": r"\bDERR=[1-9]|\bDEC_CNT=[1-9]|MC SRAM DERR",
    "hung": r"reset required due to|Timeout while waiting for device to reset|H/W queue [0-9]{1,3} test failed|Job timeout",
}
NEURON = {"neuron": r"NEURON_HW_ERR="}
TEGRA = {
    "soc-start": r"Failed initialization for: |ACR bootstrap failed|HS (?:ACR failed|ucode boot failed)|ucode patch wpr info failed"
    r"|LSF Load failed|Unable to recover GR falcon",
    "program": r"error notifier set to (?:12|13|25|31|32|80) for ch|\bmmu fault on engine",
    "hung": r"error notifier set to (?:8|24) for ch|semaphore acquire timeout",
    "over-current": r"OC ALARM 0x",
}
