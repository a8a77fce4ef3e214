import logging

logging.disable(30)
import torch, sys, time

torch.set_num_threads(1)
import tests.test_reality_layer_norm as T, shaped_attention as sa
from tests.reality import models_from_config, smallest, IDS, p_values

part = int(sys.argv[1])
names = sys.argv[2:] or [x for k, x in enumerate(T.FAMILIES) if k % 2 == part]
for name in names:
    t = time.time()
    out = []
    impl = T.implementation_of(name)

    def law(m):
        return sa.simulate_model(
            m,
            IDS,
            samples=2000,
            seed=1,
            progress=False,
            entropy=impl == "eager",
            accept_approximation=True,
        )

    for std in (0.02, 0.15):
        c = T.config_of(name, std)
        real = models_from_config(c, 500, 1, IDS, impl)
        m = sa.model_from_config(c)
        p = p_values(real, law(m))
        k = sorted(p, key=p.get)[:3]
        out.append((std, "%.3g" % min(1, len(p) * p[k[0]]), k, len(p)))
    tw = T.FAMILIES[name][2]
    w = tw(m) if callable(tw) else sa.model_from_config(c, **tw)
    out.append(("twin", "%.1g" % smallest(real, law(w))[0], smallest(real, law(w))[1]))
    print(name, out, round(time.time() - t), flush=True)
