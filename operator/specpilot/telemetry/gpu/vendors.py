"""The exporters: what each calls a number, in which unit, and where it is not what it seems.

Everything is from the exporters' own documentation and source as of 2026 (`fact` says which); none
of it was measured on hardware by this project.
"""

import re

from specpilot.telemetry.gpu.catalogue import (
    EXPORTED,
    KUBE,
    MIB,
    OLD,
    PLAIN,
    Exporter,
    Limit,
    Scope,
    Series,
)
from specpilot.telemetry.names import DeviceGauge

_ANY = re.compile(r".+")

# --- NVIDIA

_CSV = "etc/default-counters.csv of NVIDIA/dcgm-exporter 4"
_CSV_1X = "etc/1.x-compatibility-metrics.csv of NVIDIA/dcgm-exporter"

_NO_MIG = Limit(
    label="GPU_I_ID",
    value=_ANY,
    words="the driver gives no GPU_UTIL for a MIG instance: add DCGM_FI_PROF_GR_ENGINE_ACTIVE to "
    "the exporter's metrics CSV",
)

_PROFILING = (
    "add {} to the exporter's metrics CSV; DCGM_FI_PROF_* series need a data-centre GPU, DCGM's "
    "profiling module and the SYS_ADMIN capability, and stop while a profiler (Nsight, dcgmi "
    "profile --pause) holds the counters"
)

DCGM = Exporter(
    name="NVIDIA DCGM exporter",
    series=(
        Series(
            name="DCGM_FI_DEV_GPU_UTIL",
            gauge=DeviceGauge.UTIL,
            scale=0.01,
            scope=Scope.PROCESS,
            limits=(_NO_MIG,),
            fact=f"{_CSV}: in %; says that a kernel ran, near 100 for decoding at any batch size",
        ),
        Series(
            name="DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            gauge=DeviceGauge.UTIL,
            scale=1.0,
            fact=f"{_CSV}: ratio; the measure of utilisation under MIG",
        ),
        Series(
            name="dcgm_gpu_utilization",
            gauge=DeviceGauge.UTIL,
            scale=0.01,
            limits=(_NO_MIG,),
            fact=f"{_CSV_1X}: in %",
        ),
        Series(
            name="dcgm_fi_prof_gr_engine_active",
            gauge=DeviceGauge.UTIL,
            scale=1.0,
            fact=f"{_CSV_1X}: help text says %, but it is DCGM field 1001, a ratio",
            doubt="help text says %, DCGM's field is a ratio",
        ),
        Series(
            name="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
            gauge=DeviceGauge.TENSOR_ACTIVE,
            scale=1.0,
            fact=f"{_CSV}: ratio of cycles",
        ),
        Series(
            name="dcgm_fi_prof_pipe_tensor_active",
            gauge=DeviceGauge.TENSOR_ACTIVE,
            scale=1.0,
            fact=f"{_CSV_1X}: help text says %, but it is DCGM field 1004, a ratio",
            doubt="help text says %, DCGM's field is a ratio",
        ),
        Series(
            name="DCGM_FI_PROF_DRAM_ACTIVE",
            gauge=DeviceGauge.DRAM_ACTIVE,
            scale=1.0,
            fact=f"{_CSV}: ratio of cycles. MEM_COPY_UTIL is no substitute: a share of time",
        ),
        Series(
            name="dcgm_fi_prof_dram_active",
            gauge=DeviceGauge.DRAM_ACTIVE,
            scale=1.0,
            fact=f"{_CSV_1X}: help text says %, but it is DCGM field 1005, a ratio",
            doubt="help text says %, DCGM's field is a ratio",
        ),
        Series(
            name="DCGM_FI_DEV_FB_USED",
            gauge=DeviceGauge.MEMORY_USED,
            scale=MIB,
            scope=Scope.PROCESS,
            fact=f"{_CSV}: in MiB",
        ),
        Series(
            name="dcgm_fb_used",
            gauge=DeviceGauge.MEMORY_USED,
            scale=MIB,
            fact=f"{_CSV_1X}: in MiB",
        ),
        Series(
            name="DCGM_FI_DEV_POWER_USAGE",
            gauge=DeviceGauge.POWER,
            scale=1.0,
            scope=Scope.BOARD,
            fact=f"{_CSV}: in W; for a MIG instance the whole GPU's",
        ),
        Series(
            name="dcgm_power_usage",
            gauge=DeviceGauge.POWER,
            scale=1.0,
            scope=Scope.BOARD,
            fact=f"{_CSV_1X}: in W",
        ),
    ),
    missing={
        DeviceGauge.UTIL: "add DCGM_FI_DEV_GPU_UTIL (under MIG: DCGM_FI_PROF_GR_ENGINE_ACTIVE) to "
        "the exporter's metrics CSV",
        DeviceGauge.TENSOR_ACTIVE: _PROFILING.format("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        DeviceGauge.DRAM_ACTIVE: _PROFILING.format("DCGM_FI_PROF_DRAM_ACTIVE"),
        DeviceGauge.MEMORY_USED: "add DCGM_FI_DEV_FB_USED to the exporter's metrics CSV",
        DeviceGauge.POWER: "add DCGM_FI_DEV_POWER_USAGE to the exporter's metrics CSV",
    },
    owners=(EXPORTED, OLD, PLAIN),
    device=(("UUID",), ("uuid",)),
    part_of_gpu="GPU_I_ID",
    part_alias="MIG-{board}/{part}/0",  # the CUDA runtime's spelling up to driver 470
    sharing="vgpu",
    indices=("gpu", "device"),
)

# --- AMD

_AMD = "docs/configuration/metricslist.md of ROCm/device-metrics-exporter 1.5"

_UNPARTITIONED = Limit(
    label="gpu_compute_partition_type",
    value=re.compile(r"[cdqt]px", re.IGNORECASE),
    words="a partitioned GPU (CPX, DPX, QPX) reports this for its first partition only and 0 for "
    "the others; there is no number per partition",
)

_AMD_FIELDS = "add {} to GPUConfig.Fields in the exporter's configuration (empty exports all)"

AMD = Exporter(
    name="AMD device metrics exporter",
    series=(
        Series(
            name="gpu_gfx_activity",
            gauge=DeviceGauge.UTIL,
            scale=0.01,
            limits=(_UNPARTITIONED,),
            fact=f"{_AMD}: percentage",
        ),
        Series(
            name="gpu_prof_tensor_active_percent",
            gauge=DeviceGauge.TENSOR_ACTIVE,
            scale=0.01,
            fact=f"{_AMD}: MFMA utilisation in percent",
        ),
        Series(
            name="gpu_umc_activity",
            gauge=DeviceGauge.DRAM_ACTIVE,
            scale=0.01,
            limits=(_UNPARTITIONED,),
            fact=f"{_AMD}: memory controllers, percentage",
        ),
        Series(
            name="gpu_used_vram",
            gauge=DeviceGauge.MEMORY_USED,
            scale=MIB,
            fact=f"{_AMD}: 'MB' of 2^20 bytes: a 192 GiB MI300X has 196592 of them",
        ),
        Series(
            name="gpu_package_power",
            gauge=DeviceGauge.POWER,
            scale=1.0,
            scope=Scope.BOARD,
            limits=(_UNPARTITIONED,),
            fact=f"{_AMD}: in W, MI3xx",
        ),
        Series(
            name="gpu_power_usage",
            gauge=DeviceGauge.POWER,
            scale=1.0,
            scope=Scope.BOARD,
            limits=(_UNPARTITIONED,),
            fact=f"{_AMD}: in W",
        ),
        Series(
            name="gpu_average_package_power",
            gauge=DeviceGauge.POWER,
            scale=1.0,
            scope=Scope.BOARD,
            limits=(_UNPARTITIONED,),
            fact=f"{_AMD}: in W, MI2xx",
        ),
    ),
    missing={
        DeviceGauge.UTIL: _AMD_FIELDS.format("GPU_GFX_ACTIVITY"),
        DeviceGauge.TENSOR_ACTIVE: _AMD_FIELDS.format("GPU_PROF_TENSOR_ACTIVE_PERCENT")
        + " and turn ProfilerMetrics on; not on Radeon, nor under AppArmor",
        DeviceGauge.DRAM_ACTIVE: _AMD_FIELDS.format("GPU_UMC_ACTIVITY"),
        DeviceGauge.MEMORY_USED: _AMD_FIELDS.format("GPU_USED_VRAM")
        + "; not on an SR-IOV hypervisor",
        DeviceGauge.POWER: _AMD_FIELDS.format("GPU_PACKAGE_POWER") + "; not in a guest VM",
    },
    owners=(EXPORTED, PLAIN),
    device=(("gpu_uuid",), ("hostname", "gpu_id", "serial_number")),
    part_of_gpu="gpu_partition_id",
    indices=("gpu_id",),
    prefixed=True,
)

# --- Intel

_XPUM = "the Prometheus exporter in intel/xpumanager 1"
_XPUM_SCALE = (
    "its help text says %, its source multiplies by 0.01; taken as a share of 1, not yet seen on "
    "hardware"
)

_XPUM_METRICS = "let XPU Manager collect {} (its environment variable XPUM_METRICS)"

INTEL = Exporter(
    name="Intel XPU Manager",
    series=(
        Series(
            name="xpum_engine_ratio",
            gauge=DeviceGauge.UTIL,
            scale=1.0,
            fact=f"{_XPUM}: GPU active time; {_XPUM_SCALE}",
            doubt=_XPUM_SCALE,
        ),
        Series(
            name="xpum_engine_group_ratio",
            gauge=DeviceGauge.UTIL,
            scale=1.0,
            where={"type": "compute"},
            fact=f"{_XPUM}: per group of engines; {_XPUM_SCALE}",
            doubt=_XPUM_SCALE,
        ),
        Series(
            name="xpum_memory_bandwidth_ratio",
            gauge=DeviceGauge.DRAM_ACTIVE,
            scale=1.0,
            fact=f"{_XPUM}: throughput over the largest; {_XPUM_SCALE}",
            doubt=_XPUM_SCALE,
        ),
        Series(
            name="xpum_memory_used_bytes",
            gauge=DeviceGauge.MEMORY_USED,
            scale=1.0,
            fact=f"{_XPUM}: in bytes, per tile",
        ),
        Series(
            name="xpum_power_watts",
            gauge=DeviceGauge.POWER,
            scale=1.0,
            scope=Scope.BOARD,
            fact=f"{_XPUM}: in W, per tile and GPU; per card without a GPU's labels",
        ),
    ),
    missing={
        DeviceGauge.UTIL: _XPUM_METRICS.format("GPU utilization"),
        DeviceGauge.TENSOR_ACTIVE: "XPU Manager has no measure of the matrix engines: use gpu_util",
        DeviceGauge.DRAM_ACTIVE: _XPUM_METRICS.format("memory bandwidth"),
        DeviceGauge.MEMORY_USED: _XPUM_METRICS.format("used memory"),
        DeviceGauge.POWER: _XPUM_METRICS.format("power"),
    },
    owners=(KUBE,),
    device=(("uuid",), ("node", "pci_bdf")),
    tile="sub_dev",
    indices=("dev_file",),
)

# --- Gaudi

_HL = "the Prometheus metric exporter of the Gaudi documentation, 1.23"

GAUDI = Exporter(
    name="Gaudi metric exporter",
    series=(
        Series(
            name="habanalabs_utilization",
            gauge=DeviceGauge.UTIL,
            scale=0.01,
            fact=f"{_HL}: in %",
        ),
        Series(
            name="habanalabs_memory_used_bytes",
            gauge=DeviceGauge.MEMORY_USED,
            scale=1.0,
            fact=f"{_HL}: in bytes",
        ),
        Series(
            name="habanalabs_power_mW",
            gauge=DeviceGauge.POWER,
            scale=0.001,
            scope=Scope.BOARD,
            fact=f"{_HL}: in mW",
        ),
    ),
    missing={
        DeviceGauge.UTIL: "update the Gaudi metric exporter: it has habanalabs_utilization",
        DeviceGauge.TENSOR_ACTIVE: "Gaudi exports no measure of its matrix engine: use gpu_util",
        DeviceGauge.DRAM_ACTIVE: "Gaudi exports no measure of memory bandwidth: use gpu_util",
        DeviceGauge.MEMORY_USED: "update the Gaudi metric exporter: it has "
        "habanalabs_memory_used_bytes",
        DeviceGauge.POWER: "update the Gaudi metric exporter: it has habanalabs_power_mW",
    },
    owners=(OLD,),  # labels of the exporter's source; its documentation does not say
    device=(("UUID",), ("Serial",)),
    indices=("id",),
)

EXPORTERS = (DCGM, AMD, INTEL, GAUDI)
