// JupyterLab loads this as a federated extension. It runs the notebook that `dasd-lab lab` names in the configuration
// of the page as soon as it is open, and no other.
{
  const WIDGET = 'application/vnd.jupyter.widget-view+json';
  const config = JSON.parse(document.getElementById('jupyter-config-data').textContent);

  // Whether the outputs show widgets that still exist in the kernel, as after a reload of the page
  const isShown = async (kernel, model) => {
    const reply = await kernel.requestCommInfo({target_name: 'jupyter.widget'});
    const comms = reply.content.comms ?? {};
    const outputs = [...model.cells].flatMap(cell => cell.toJSON().outputs ?? []);
    return outputs.some(output => output.data?.[WIDGET]?.model_id in comms);
  };

  // The page first asks a new kernel for its widgets; widgets that are made before the answer would be made twice.
  // A kernel without ipywidgets closes the channel, and the page gives up after four seconds.
  const askedForWidgets = sessionContext => new Promise(resolve => {
    const hear = (_, message) => {
      if (message.content.data?.method === 'update_states' || message.header.msg_type === 'comm_close') done();
    };
    const done = () => {
      sessionContext.iopubMessage.disconnect(hear);
      resolve();
    };
    sessionContext.iopubMessage.connect(hear);
    sessionContext.ready.then(() => setTimeout(done, 5_000));
  });

  // Keep an element at the top of the window while it is drawn, until somebody acts
  const keepInView = node => {
    const observer = new ResizeObserver(() => node.scrollIntoView());
    const stop = () => observer.disconnect();
    for (const act of ['pointerdown', 'wheel', 'keydown']) addEventListener(act, stop, {capture: true, once: true});
    setTimeout(stop, 30_000);
    observer.observe(node);
  };

  const run = async (app, panel, context) => {
    const asked = askedForWidgets(panel.sessionContext);
    const session = await app.serviceManager.sessions.findByPath(context.path);
    await context.ready;
    if (!session) {  // widgets of an earlier kernel, which the page would look for in vain
      for (const cell of context.model.cells) cell.outputs?.clear();
    }
    await Promise.all([app.restored, panel.revealed, panel.sessionContext.ready, asked]);
    const kernel = panel.sessionContext.session?.kernel;
    if (!kernel) return;
    const shown = await isShown(kernel, context.model);
    if (!shown) {
      app.shell.activateById(panel.id);
      await app.commands.execute('notebook:run-all-cells');
    }
    const cell = panel.content.widgets.find(cell => cell.model.type === 'code');
    if (cell) keepInView(cell.outputArea.node);
    if (!shown) await context.save();
  };

  const plugin = {
    id: 'dasd-lab-start:plugin',
    autoStart: true,
    activate: app => app.docRegistry.addWidgetExtension('Notebook', {
      createNew: (panel, context) => {
        if (context.path === config.dasdLabRuns) run(app, panel, context).catch(console.error);
      },
    }),
  };

  globalThis._JUPYTERLAB ??= {};
  globalThis._JUPYTERLAB['dasd-lab-start'] = {
    init: () => {},  // shares no modules
    get: async () => () => ({__esModule: true, default: plugin}),
  };
}
