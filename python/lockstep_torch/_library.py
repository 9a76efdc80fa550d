"""liblockstep through ctypes: its functions, structures and status codes as include/lockstep/*.h have them.

tests/python/test_layouts compares every structure here with the headers."""

import ctypes
import os
from ctypes import POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

VERSION = "0.1"  # of the library that these declarations are for


class LockstepError(RuntimeError):
    """A call of liblockstep failed. `name` is its status code ("LS_EPEER")."""

    def __init__(self, name, message):
        super().__init__(message)
        self.name = name


class RecordOptions(Structure):
    _fields_ = [
        ("rank", c_int),
        ("ranks", c_int),
        ("node", c_int),
        ("local_rank", c_int),
        ("transport", c_char_p),
        ("segment_bytes", c_size_t),
        ("reserved", c_void_p * 2),
    ]


class Collective(Structure):
    _fields_ = [
        ("group", c_uint64),
        ("number", c_uint64),
        ("kind", c_int),
        ("bytes", c_size_t),
        ("arrived", c_int64),
        ("done", c_int64),
        ("blocked", c_int64),
        ("reserved", c_int64 * 2),
    ]


SamplerLength = ctypes.CFUNCTYPE(c_uint64, c_void_p, c_uint64)


class SamplerOptions(Structure):
    _fields_ = [
        ("samples", c_uint64),
        ("order", c_int),
        ("seed", c_uint64),
        ("batch_size", c_size_t),
        ("slots", c_int),
        ("world_size", c_int),
        ("drop_last", c_bool),
        ("drop_step", c_bool),
        ("no_shuffle", c_bool),
        ("length", SamplerLength),
        ("user", c_void_p),
        ("reserved", c_void_p * 2),
    ]


StoreSet = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
StoreGet = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t, c_int)


class Store(Structure):
    _fields_ = [("user", c_void_p), ("set", StoreSet), ("get", StoreGet), ("reserved", c_void_p * 2)]


class WorldOptions(Structure):
    _fields_ = [
        ("timeout_ms", c_int),
        ("staging_bytes", c_size_t),
        ("mpi", c_char_p),
        ("store", POINTER(Store)),
        ("rank", c_int),
        ("size", c_int),
        ("carrier", c_void_p),
        ("reserved", c_void_p * 2),
    ]


CarrierOpen = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
CarrierSend = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p, c_size_t, c_void_p)
CarrierClose = ctypes.CFUNCTYPE(None, c_void_p, c_bool)


class Carrier(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("user", c_void_p),
        ("open", CarrierOpen),
        ("send", CarrierSend),
        ("close", CarrierClose),
        ("reserved", c_void_p * 2),
    ]


class Span(Structure):
    _fields_ = [("name", c_char_p), ("grad", c_void_p), ("count", c_size_t)]


class CommHook(Structure):
    _fields_ = [("start", c_void_p), ("finish", c_void_p), ("user", c_void_p)]


class DdpOptions(Structure):
    _fields_ = [
        ("bucket_bytes", c_size_t),
        ("first_bucket_bytes", c_size_t),
        ("slots", c_int),
        ("sum_order", c_int),
        ("wire", c_int),
        ("grads_averaged", c_bool),
        ("keep_sums", c_bool),
        ("fixed_order", c_bool),
        ("reduce_to_local_root", c_bool),
        ("no_overlap", c_bool),
        ("buffers", c_void_p),
        ("n_buffers", c_size_t),
        ("buffer_mode", c_int),
        ("hook", CommHook),
        ("reserved", c_void_p * 2),
    ]


class DdpResult(Structure):
    _fields_ = [("weight", c_double), ("unused", c_int64), ("moved", c_bool), ("joined", c_int), ("reserved", c_double * 2)]


# Structures by their names in the headers.
STRUCTURES = {
    "ls_record_options": RecordOptions,
    "ls_collective": Collective,
    "ls_sampler_options": SamplerOptions,
    "ls_world_options": WorldOptions,
    "ls_store": Store,
    "ls_carrier": Carrier,
    "ls_span": Span,
    "ls_comm_hook": CommHook,
    "ls_ddp_options": DdpOptions,
    "ls_ddp_result": DdpResult,
}

# Values of enums that this package uses, by their names in the headers.
CONSTANTS = {
    "LS_OK": 0,
    "LS_PENDING": 1,
    "LS_EINVAL": -1,
    "LS_EIO": -4,
    "LS_EFORMAT": -6,
    "LS_EPEER": -10,
    "LS_ETIMEOUT": -11,
    "LS_DDP_SYNC": 0,
    "LS_DDP_ACCUMULATE": 1,
    "LS_SUM_ORDER_CANONICAL": 0,
    "LS_SUM_ORDER_ANY": 1,
    "LS_F32": 0,
    "LS_F64": 1,
    "LS_BF16": 2,
    "LS_I32": 3,
    "LS_I64": 4,
    "LS_U8": 5,
    "LS_F16": 6,
    "LS_I8": 7,
    "LS_I16": 8,
    "LS_BOOL": 9,
    "LS_SUM": 0,
    "LS_MEAN": 1,
    "LS_MIN": 2,
    "LS_MAX": 3,
    "LS_PROD": 4,
    "LS_AND": 5,
    "LS_OR": 6,
    "LS_XOR": 7,
    "LS_PHASE_OTHER": 0,
    "LS_PHASE_DATA": 1,
    "LS_PHASE_FORWARD": 2,
    "LS_PHASE_BACKWARD": 3,
    "LS_PHASE_UPDATE": 4,
    "LS_PHASE_WAIT": 5,
    "LS_PHASE_COMM": 6,
    "LS_PHASE_CHECKPOINT": 7,
    "LS_PHASE_EVAL": 8,
    "LS_EVENT_BUCKET_READY": 9,
    "LS_EVENT_BUCKET_START": 10,
    "LS_EVENT_SPAN_READY": 11,
    "LS_EVENT_BATCH": 12,
    "LS_EVENT_LOST": 16,
    "LS_METADATA_TOKENS": 2,
    "LS_METADATA_BUCKET": 4,
    "LS_METADATA_BUCKETS": 5,
    "LS_METADATA_WORKERS": 6,
    "LS_METADATA_WORKERS_FIXED": 7,
    "LS_METADATA_PREFETCH": 8,
    "LS_METADATA_THREADS": 9,
    "LS_METADATA_PARAMETERS": 10,
    "LS_METADATA_TORCH": 19,
    "LS_NAME_SPAN": 0,
    "LS_COLLECTIVE_ALLREDUCE": 0,
    "LS_COLLECTIVE_REDUCE": 1,
    "LS_COLLECTIVE_REDUCE_SCATTER": 2,
    "LS_COLLECTIVE_ALLGATHER": 3,
    "LS_COLLECTIVE_BROADCAST": 4,
    "LS_COLLECTIVE_GATHER": 5,
    "LS_COLLECTIVE_SCATTER": 6,
    "LS_COLLECTIVE_ALLTOALL": 7,
    "LS_COLLECTIVE_BARRIER": 8,
    "LS_ORDER_SHUFFLED": 0,
    "LS_ORDER_SEQUENTIAL": 1,
    "LS_ORDER_TORCH": 2,
    "LS_ORDER_BALANCED": 3,
}
globals().update({name[3:]: value for name, value in CONSTANTS.items()})

# name: (result, arguments...). A result of c_int is an ls_status, which check() turns into an exception.
FUNCTIONS = {
    "ls_version": (c_char_p,),
    "ls_error": (c_char_p,),
    "ls_status_name": (c_char_p, c_int),
    "ls_now": (c_int64,),
    "ls_record_open": (c_int, POINTER(c_void_p), c_char_p, POINTER(RecordOptions)),
    "ls_record_start": (c_int, c_void_p, c_char_p),
    "ls_record_stop": (None, c_void_p),
    "ls_record_free": (None, POINTER(c_void_p)),
    "ls_record_step": (None, c_void_p, c_int64),
    "ls_record_begin": (None, c_void_p, c_int),
    "ls_record_end": (None, c_void_p, c_int),
    "ls_record_collective": (None, c_void_p, POINTER(Collective)),
    "ls_collective_id": (c_uint64, c_uint64, c_uint64),
    "ls_record_metadata": (None, c_void_p, c_int, c_double),
    "ls_record_name": (None, c_void_p, c_int, c_uint32, c_char_p),
    "ls_record_event": (None, c_void_p, c_int64, c_int, c_uint64, c_uint64),
    "ls_allreduce": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "ls_allreduce_start": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, POINTER(c_void_p)),
    "ls_reduce": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int),
    "ls_reduce_start": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, POINTER(c_void_p)),
    "ls_reduce_scatter": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "ls_reduce_scatter_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, POINTER(c_void_p)),
    "ls_allgather": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int),
    "ls_allgather_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, POINTER(c_void_p)),
    "ls_broadcast": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "ls_broadcast_start": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, POINTER(c_void_p)),
    "ls_gather": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "ls_gather_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, POINTER(c_void_p)),
    "ls_scatter": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "ls_scatter_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, POINTER(c_void_p)),
    "ls_alltoall": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int),
    "ls_alltoall_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, POINTER(c_void_p)),
    "ls_alltoallv": (c_int, c_void_p, c_void_p, POINTER(c_size_t), c_void_p, POINTER(c_size_t), c_int),
    "ls_premultiply": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_double),
    "ls_barrier": (c_int, c_void_p),
    "ls_barrier_start": (c_int, c_void_p, POINTER(c_void_p)),
    "ls_send_tagged": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int64, POINTER(c_void_p)),
    "ls_recv_tagged": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int64, POINTER(c_void_p)),
    "ls_p2p_wait": (c_int, POINTER(c_void_p), POINTER(c_int)),
    "ls_p2p_test": (c_int, POINTER(c_void_p), POINTER(c_int)),
    "ls_p2p_cancel": (None, POINTER(c_void_p)),
    "ls_work_wait": (c_int, POINTER(c_void_p)),
    "ls_work_test": (c_int, POINTER(c_void_p)),
    "ls_world_open": (c_int, POINTER(c_void_p), POINTER(WorldOptions)),
    "ls_world_free": (None, POINTER(c_void_p)),
    "ls_world_adopt": (c_int, c_void_p, c_void_p, c_size_t),
    "ls_world_disown": (None, c_void_p, c_void_p),
    "ls_world_group": (c_void_p, c_void_p),
    "ls_world_record": (c_void_p, c_void_p),
    "ls_group_open": (c_int, c_void_p, POINTER(c_int), c_int, POINTER(Store), c_char_p, POINTER(c_void_p)),
    "ls_network_sent": (None, c_void_p, c_void_p),
    "ls_network_received": (None, c_void_p, c_int, c_void_p, c_size_t),
    "ls_network_failed": (None, c_void_p, c_int, c_char_p),
    "ls_group_free": (None, POINTER(c_void_p)),
    "ls_group_abort": (None, c_void_p, c_char_p),
    "ls_ddp_open": (c_int, POINTER(c_void_p), c_void_p, POINTER(Span), c_size_t, POINTER(DdpOptions)),
    "ls_ddp_free": (None, POINTER(c_void_p)),
    "ls_ddp_grad": (c_void_p, c_void_p, c_size_t),
    "ls_ddp_begin": (c_int, c_void_p, c_int, c_double),
    "ls_ddp_ready": (c_int, c_void_p, c_size_t),
    "ls_ddp_finish": (c_int, c_void_p, POINTER(DdpResult)),
    "ls_ddp_unused": (c_bool, c_void_p, c_size_t),
    "ls_slots_of_rank": (c_int, c_int, c_int, c_int, POINTER(c_int), POINTER(c_int)),
    "ls_sampler_open": (c_int, POINTER(c_void_p), POINTER(SamplerOptions)),
    "ls_sampler_free": (None, POINTER(c_void_p)),
    "ls_sampler_steps": (c_uint64, c_void_p),
    "ls_sampler_get_samples": (c_int, c_void_p, c_uint64, c_uint64, c_int, POINTER(c_uint64), POINTER(c_size_t)),
}


def library_path():
    """The library of this package, or what LOCKSTEP_LIBRARY names."""
    return os.environ.get("LOCKSTEP_LIBRARY") or os.path.join(os.path.dirname(__file__), "lib", "liblockstep.so")


def load(path):
    """Loads the library at `path` and declares FUNCTIONS. ImportError says what is wrong with it."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"lockstep_torch: {path} cannot be loaded ({error}); install the package (pip install ./python), "
            "or name a liblockstep.so in LOCKSTEP_LIBRARY"
        ) from None
    try:
        library.ls_version.restype = c_char_p
        version = library.ls_version().decode()
        if version.rsplit(".", 1)[0] != VERSION:
            raise ImportError(f"lockstep_torch: {path} is liblockstep {version}, but this package needs {VERSION}")
        for name, (result, *arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except AttributeError as error:
        raise ImportError(f"lockstep_torch: {path} is not a liblockstep of this version ({error})") from None
    return library


lib = load(library_path())


def check(status):
    """Raises LockstepError with the library's message if a call failed. Returns statuses >= 0."""
    if status < 0:
        raise LockstepError(lib.ls_status_name(status).decode(), lib.ls_error().decode(errors="replace"))
    return status
