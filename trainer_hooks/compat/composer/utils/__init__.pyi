from trainer_hooks.callbacks import export_for_inference as export_for_inference
from trainer_hooks.compat.composer.core.event import StringEnum as StringEnum

from . import dist as dist
from . import reproducibility as reproducibility
from .helpers import batch_get as batch_get
from .helpers import batch_set as batch_set
from .helpers import ensure_tuple as ensure_tuple
from .helpers import format_name_with_dist as format_name_with_dist
from .helpers import get_free_tcp_port as get_free_tcp_port
from .helpers import is_notebook as is_notebook
from .helpers import map_collection as map_collection
from .helpers import model_eval_mode as model_eval_mode
from .helpers import parse_uri as parse_uri
